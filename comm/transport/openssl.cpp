// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/openssl.hpp"

namespace winnow::comm {

LibCrypto::LibCrypto() {
  library.find("EVP_sha256", sha256);
  library.find("EVP_Digest", digest);
  library.find("HMAC", hmac);
  library.find("ERR_get_error", next_error);
  library.find("ERR_clear_error", clear_errors);
  library.find("ERR_reason_error_string", reason);
  library.find("X509_verify_cert_error_string", verify_text);
}

LibSsl::LibSsl() {
  library.find("TLS_method", method);
  library.find("SSL_CTX_new", new_context);
  library.find("SSL_CTX_free", free_context);
  library.find("SSL_CTX_ctrl", control);
  library.find("SSL_CTX_set_options", set_options);
  library.find("SSL_CTX_set_num_tickets", set_tickets);
  library.find("SSL_CTX_set_ciphersuites", set_suites);
  library.find("SSL_CTX_set_default_read_buffer_len", set_read_buffer);
  library.find("SSL_CTX_set_verify", set_verify);
  library.find("SSL_CTX_set_default_passwd_cb", set_passphrase);
  library.find("SSL_CTX_set_default_passwd_cb_userdata", set_passphrase_data);
  library.find("SSL_CTX_use_certificate_chain_file", use_certificate);
  library.find("SSL_CTX_use_PrivateKey_file", use_key);
  library.find("SSL_CTX_check_private_key", check_key);
  library.find("SSL_CTX_load_verify_locations", load_authority);
  library.find("SSL_CTX_set_psk_use_session_callback", set_use_session);
  library.find("SSL_CTX_set_psk_find_session_callback", set_find_session);
  library.find("SSL_new", new_ssl);
  library.find("SSL_free", free_ssl);
  library.find("SSL_set_fd", set_socket);
  library.find("SSL_set_ex_data", set_data);
  library.find("SSL_get_ex_data", get_data);
  library.find("SSL_set_connect_state", connect);
  library.find("SSL_set_accept_state", accept);
  library.find("SSL_do_handshake", shake);
  library.find("SSL_read_ex", read);
  library.find("SSL_write_ex", write);
  library.find("SSL_get_error", error);
  library.find("SSL_get_verify_result", verified);
  library.find("SSL_CIPHER_find", find_cipher);
  library.find("SSL_SESSION_new", new_session);
  library.find("SSL_SESSION_free", free_session);
  library.find("SSL_SESSION_set1_master_key", set_master_key);
  library.find("SSL_SESSION_set_cipher", set_cipher);
  library.find("SSL_SESSION_set_protocol_version", set_version);
}

const LibCrypto& libcrypto() {
  static const LibCrypto found;
  return found;
}

const LibSsl& libssl() {
  static const LibSsl found;
  return found;
}

}  // namespace winnow::comm
