// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tls.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <system_error>
#include <utility>
#include <winnow/error.hpp>

#include "comm/transport/openssl.hpp"

namespace winnow::comm {
namespace {

constexpr int kVersion = 0x0304;                // TLS1_3_VERSION
constexpr int kPem = 1;                         // SSL_FILETYPE_PEM
constexpr int kVerify = 1 | 2;                  // SSL_VERIFY_PEER, SSL_VERIFY_FAIL_IF_NO_PEER_CERT
constexpr int kSetMode = 33;                    // SSL_CTRL_MODE
constexpr long kModes = 1 | 2;                  // partial writes, of buffers that move
constexpr int kSetReadAhead = 41;               // SSL_CTRL_SET_READ_AHEAD
constexpr int kSetMinVersion = 123;             // SSL_CTRL_SET_MIN_PROTO_VERSION
constexpr int kGetChain = 115;                  // SSL_CTRL_GET_CHAIN_CERTS
constexpr int kNotYetValid = 9, kExpired = 10;  // X509_V_ERR_CERT_*
constexpr unsigned long kKernel = 8;            // SSL_OP_ENABLE_KTLS
constexpr unsigned long kShortEnd = 128;  // SSL_OP_IGNORE_UNEXPECTED_EOF: lengths travel in frames
constexpr int kWantsRead = 2, kWantsWrite = 3, kSystemCall = 5, kEnd = 6;  // SSL_ERROR_*
constexpr std::array<unsigned char, 2> kAes128{0x13, 0x01};                // TLS_AES_128_GCM_SHA256
constexpr const char* kSuites =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
constexpr const char* kSuitesOfKey = "TLS_AES_128_GCM_SHA256";  // a key's is fixed with it
constexpr std::size_t kRecord = 16384;                          // bytes that TLS encrypts at once
constexpr std::size_t kReadBuffer = std::size_t{8} * (kRecord + 256);
constexpr std::array<unsigned char, 6> kIdentity{'w', 'i', 'n', 'n', 'o', 'w'};
constexpr int kSelf = 0;  // of what OpenSSL keeps for the application

SslContext* context_of(void* context) {
  return static_cast<SslContext*>(context);
}

Ssl* ssl_of(void* session) {
  return static_cast<Ssl*>(session);
}

/// The first of OpenSSL's errors of this thread, and forgets all.
std::string reason_of_errors() {
  const unsigned long code = libcrypto().next_error();
  libcrypto().clear_errors();
  const char* const text = code == 0 ? nullptr : libcrypto().reason(code);
  return text == nullptr ? "OpenSSL names no reason" : text;
}

void expect_done(int returned, const char* what) {
  if (returned != 1) throw CommError(std::string(what) + ": " + reason_of_errors());
}

/// Before OpenSSL does: it does not say why it cannot, and would wait for who writes to a pipe.
void expect_readable(const char* what, const std::string& path) {
  const std::string named = std::string("TLS: ").append(what).append(" '").append(path) + "'";
  struct stat status {};
  WINNOW_EXPECTS(::stat(path.c_str(), &status) == 0,
                 named + ": " + std::generic_category().message(errno));
  WINNOW_EXPECTS(S_ISREG(status.st_mode), named + " is no regular file");
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  WINNOW_EXPECTS(file >= 0, named + ": " + std::generic_category().message(errno));
  ::close(file);
}

/// OpenSSL would ask for a passphrase on the terminal, past every deadline.
int refuse_passphrase(char*, int, int, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

void expect_file(int returned, const char* what, const std::string& path) {
  WINNOW_EXPECTS(returned == 1,
                 std::string("TLS: ").append(what).append(" '").append(path).append("': ").append(
                     reason_of_errors()));
}

/// Whoever names files means to encrypt by them.
void expect_files(const TcpTls& options) {
  const std::array files{std::pair("certificate", &options.certificate),
                         std::pair("key", &options.key),
                         std::pair("authority", &options.authority)};
  const bool needed = options.mode == TcpTls::Mode::certificates;
  for (const auto& [name, path] : files) {
    WINNOW_EXPECTS(
        path->empty() != needed,
        std::string(needed ? "TLS by certificates needs a file for the "
                           : "TLS is not by certificates, and there is a file for the ") +
            name + ": TcpTls::" + name + ", WINNOW_TCP_TLS_CERTIFICATE, _KEY and _AUTHORITY");
  }
}

/// As other ranks will check it, if they have the same authorities: the one whose certificate is
/// wrong would learn least of it. For no purpose, as it is for both ends.
void expect_certified(SslContext* context, const TcpTls& options) {
  const LibCrypto& crypto = libcrypto();
  const std::unique_ptr<X509StoreContext, void (*)(X509StoreContext*)> check(crypto.new_check(),
                                                                             crypto.free_check);
  X509Stack* chain = nullptr;
  (void)libssl().control(context, kGetChain, 0, &chain);
  if (check == nullptr || crypto.begin_check(check.get(), libssl().authority(context),
                                             libssl().certificate(context), chain) != 1)
    throw CommError("X509_STORE_CTX_init: " + reason_of_errors());
  if (crypto.check(check.get()) == 1) return;
  const int error = crypto.check_error(check.get());
  const bool is_late = error == kNotYetValid || error == kExpired;
  std::string text = "TLS: the certificate '" + options.certificate + "'";
  if (is_late && crypto.check_depth(check.get()) > 0) text += ", one behind it";
  if (!is_late) text += " is not of the authority '" + options.authority + "'";
  crypto.clear_errors();
  fail_usage(text + ": " + crypto.verify_text(error));
}

void use_files(SslContext* context, const TcpTls& options) {
  const LibSsl& ssl = libssl();
  expect_readable("the certificate", options.certificate);
  expect_readable("the key", options.key);
  expect_readable("the authority", options.authority);
  bool is_encrypted = false;
  ssl.set_passphrase(context, &refuse_passphrase);
  ssl.set_passphrase_data(context, &is_encrypted);
  expect_file(ssl.use_certificate(context, options.certificate.c_str()), "the certificate",
              options.certificate);
  const int has_key = ssl.use_key(context, options.key.c_str(), kPem);
  ssl.set_passphrase_data(context, nullptr);
  WINNOW_EXPECTS(!is_encrypted, "TLS: the key '" + options.key +
                                    "' is encrypted, and nobody is asked for a passphrase: store "
                                    "it without one, readable by its owner alone");
  expect_file(has_key, "the key", options.key);
  expect_file(ssl.check_key(context), "the key", options.key);
  expect_file(ssl.load_authority(context, options.authority.c_str(), nullptr), "the authority",
              options.authority);
  expect_certified(context, options);
  ssl.set_verify(context, kVerify, nullptr);
}

}  // namespace

/// How both ends find the key of a connection.
struct TlsSession::Callbacks {
  static int use(Ssl* ssl, const EvpMd*, const unsigned char** identity, std::size_t* bytes,
                 SslSession** session) {
    *identity = kIdentity.data();
    *bytes = kIdentity.size();
    return make(ssl, session);
  }
  static int find(Ssl* ssl, const unsigned char*, std::size_t, SslSession** session) {
    return make(ssl, session);
  }
  static int make(Ssl* ssl, SslSession** session) {
    const LibSsl& functions = libssl();
    const auto* const self = static_cast<const TlsSession*>(functions.get_data(ssl, kSelf));
    *session = functions.new_session();
    if (*session == nullptr) return 0;
    const auto* const key = reinterpret_cast<const unsigned char*>(self->key_.data());
    if (functions.set_master_key(*session, key, self->key_.size()) == 1 &&
        functions.set_cipher(*session, functions.find_cipher(ssl, kAes128.data())) == 1 &&
        functions.set_version(*session, kVersion) == 1)
      return 1;
    functions.free_session(*session);
    *session = nullptr;
    return 0;
  }
};

/// Keeps a SIGPIPE of this thread's writes from the process: OpenSSL writes as to any file.
class TlsSession::Quiet {
 public:
  Quiet() {
    sigset_t pending;
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    ::sigpending(&pending);
    was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
  ~Quiet() {
    const int code = errno;
    const timespec now{};
    if (!was_pending_) ::sigtimedwait(&pipe_, nullptr, &now);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = code;
  }

 private:
  sigset_t pipe_, before_;
  bool was_pending_;
};

TcpTls::Mode tls_mode_of(std::string_view word, std::string_view what) {
  if (word == "off") return TcpTls::Mode::off;
  if (word == "secret") return TcpTls::Mode::secret;
  if (word == "certificates") return TcpTls::Mode::certificates;
  fail_usage(std::string(what) + "='" + std::string(word) +
             "': must be off, secret or certificates");
}

TlsContext::TlsContext(const TcpTls& options) : mode_(options.mode) {
  expect_files(options);
  if (mode_ == TcpTls::Mode::off) return;
  const LibSsl& ssl = libssl();
  for (const Library* const library : {&ssl.library, &libcrypto().library})
    WINNOW_EXPECTS(library->problem().empty(),
                   "TLS needs OpenSSL's libssl, which cannot be loaded: " + library->problem());
  SslContext* const context = ssl.new_context(ssl.method());
  if (context == nullptr) throw CommError("SSL_CTX_new: " + reason_of_errors());
  context_ =
      std::shared_ptr<void>(context, [](void* made) { libssl().free_context(context_of(made)); });
  expect_done(static_cast<int>(ssl.control(context, kSetMinVersion, kVersion, nullptr)),
              "this OpenSSL has no TLS 1.3");
  (void)ssl.control(context, kSetMode, kModes, nullptr);
  (void)ssl.control(context, kSetReadAhead, 1, nullptr);
  (void)ssl.set_options(context, kKernel | kShortEnd);
  (void)ssl.set_tickets(context, 0);  // nobody comes again
  ssl.set_read_buffer(context, kReadBuffer);
  const bool by_key = mode_ == TcpTls::Mode::secret;
  expect_done(ssl.set_suites(context, by_key ? kSuitesOfKey : kSuites), "SSL_CTX_set_ciphersuites");
  if (by_key) {
    ssl.set_use_session(context, &TlsSession::Callbacks::use);
    ssl.set_find_session(context, &TlsSession::Callbacks::find);
  } else {
    use_files(context, options);
  }
}

TlsSession::TlsSession(const TlsContext& context, int socket, End end, const Digest& key)
    : context_(context), key_(key) {
  record_.reserve(kRecord);
  const LibSsl& functions = libssl();
  Ssl* const ssl = functions.new_ssl(context_of(context_.context_.get()));
  if (ssl == nullptr) throw CommError("SSL_new: " + reason_of_errors());
  session_ = ssl;
  if (functions.set_socket(ssl, socket) != 1 || functions.set_data(ssl, kSelf, this) != 1) {
    functions.free_ssl(ssl);
    throw CommError("SSL_set_fd: " + reason_of_errors());
  }
  end == End::client ? functions.connect(ssl) : functions.accept(ssl);
}

TlsSession::~TlsSession() {
  libssl().free_ssl(ssl_of(session_));
}

TlsSession::Shake TlsSession::shake() {
  const std::lock_guard lock(mutex_);
  const Quiet quiet;
  libcrypto().clear_errors();
  errno = 0;
  const int returned = libssl().shake(ssl_of(session_));
  if (returned == 1) {
    ready_ = true;
    return Shake::done;
  }
  const int error = libssl().error(ssl_of(session_), returned);
  if (error == kWantsRead) return Shake::wants_read;
  if (error == kWantsWrite) return Shake::wants_write;
  if (fail(returned) == 0) problem_ = "the connection was closed";
  return Shake::failed;
}

/// Sets problem_ and errno after a call that has failed. Returns 0 if the other end has closed the
/// connection, otherwise -1.
int TlsSession::fail(int returned) {
  const int code = errno;
  const LibSsl& functions = libssl();
  const int error = functions.error(ssl_of(session_), returned);
  if (error == kEnd) {
    errno = ECONNRESET;
    return 0;
  }
  errno = EPROTO;
  if (error == kWantsRead || error == kWantsWrite) {
    errno = EAGAIN;
  } else if (error == kSystemCall && code != 0) {
    problem_ = std::generic_category().message(code);
    errno = code;
  } else {
    problem_ = "TLS: " + reason_of_errors();
    const long verified = functions.verified(ssl_of(session_));
    constexpr long kUnspecified = 1;  // also where a key is shared and nothing is verified
    if (verified > kUnspecified)
      problem_.append(" (").append(libcrypto().verify_text(verified)).append(")");
  }
  return -1;
}

/// Returns the next record to encrypt: at most 16384 contiguous bytes after the first `skipped` of
/// these pieces.
std::span<const std::byte> TlsSession::next_record(std::span<const iovec> pieces,
                                                   std::size_t skipped) {
  std::size_t first = 0;
  while (first < pieces.size() && skipped >= pieces[first].iov_len)
    skipped -= pieces[first++].iov_len;
  if (first == pieces.size()) return {};
  const auto rest_of = [&](std::size_t piece) {
    const std::size_t begin = piece == first ? skipped : 0;
    return std::span(static_cast<const std::byte*>(pieces[piece].iov_base), pieces[piece].iov_len)
        .subspan(begin);
  };
  const auto head = rest_of(first);
  if (head.size() >= kRecord || first + 1 == pieces.size())
    return head.first(std::min(kRecord, head.size()));
  record_.clear();
  for (std::size_t piece = first; piece < pieces.size() && record_.size() < kRecord; ++piece) {
    const auto part = rest_of(piece);
    const auto taken = part.first(std::min(kRecord - record_.size(), part.size()));
    record_.insert(record_.end(), taken.begin(), taken.end());
  }
  return record_;
}

::ssize_t TlsSession::write(std::span<const iovec> pieces) {
  const std::lock_guard lock(mutex_);
  const Quiet quiet;
  std::size_t done = 0;
  for (;;) {
    const std::span<const std::byte> record = next_record(pieces, done);
    if (record.empty()) return static_cast<::ssize_t>(done);
    libcrypto().clear_errors();
    errno = 0;
    std::size_t written = 0;
    const int returned = libssl().write(ssl_of(session_), record.data(), record.size(), &written);
    if (returned != 1) {
      const int failed = fail(returned);
      if (done != 0 && errno == EAGAIN) return static_cast<::ssize_t>(done);
      return failed == 0 ? -1 : failed;
    }
    done += written;
  }
}

::ssize_t TlsSession::read(std::span<const iovec> pieces) {
  const std::lock_guard lock(mutex_);
  const Quiet quiet;
  std::size_t done = 0;
  for (const iovec& piece : pieces) {
    for (std::size_t filled = 0; filled < piece.iov_len;) {
      libcrypto().clear_errors();
      errno = 0;
      std::size_t got = 0;
      const int returned =
          libssl().read(ssl_of(session_), static_cast<std::byte*>(piece.iov_base) + filled,
                        piece.iov_len - filled, &got);
      if (returned != 1) {
        const int failed = fail(returned);
        const bool later = failed == 0 || errno == EAGAIN;  // the next call says so again
        return done != 0 && later ? static_cast<::ssize_t>(done) : failed;
      }
      filled += got;
      done += got;
    }
  }
  return static_cast<::ssize_t>(done);
}

std::string TlsSession::problem() const {
  const std::lock_guard lock(mutex_);
  return problem_;
}

}  // namespace winnow::comm
