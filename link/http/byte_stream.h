// One TCP connection to a provider, with TLS or without: blocking, each call with a deadline. One
// thread uses it at a time. Cancel ends the waits of all that share it. The program ignores
// SIGPIPE. Errors: unavailable = cannot connect (nothing was sent); unsupported = the certificate
// is not accepted; deadline_exceeded; io = the connection broke, or was cancelled.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/net/tls_stream.h"
#include "base/os/fd.h"
#include "link/deadline.h"
#include "link/http/origin.h"

namespace moorage::link {

// From any thread.
class Cancel {
 public:
  Cancel();
  void cancel() const;
  bool cancelled() const;
  int fd() const { return fd_.get(); }  // readable once cancelled

 private:
  Fd fd_;
};

// The authorities that sign providers' certificates: the system's, and those of a file.
using Trust = std::shared_ptr<ssl_ctx_st>;
Trust make_trust(const std::string& ca_file);  // empty: the system's alone. Throws.

class ByteStream {
 public:
  ByteStream(const Origin& origin, const Trust& trust, Deadline deadline, const Cancel& cancel);

  // At least one byte; 0: the other side ended the connection in order.
  size_t read(std::span<char> buffer, Deadline deadline);
  void write(std::string_view bytes, Deadline deadline);
  // Between two exchanges: neither ended by the other side nor with bytes that nobody asked for.
  bool is_quiet() const;

 private:
  void wait(short events, Deadline deadline) const;
  void shake_hands(Deadline deadline);

  const Cancel& cancel_;
  Fd socket_;
  base::TlsStream stream_;
  std::string outgoing_;
};

}  // namespace moorage::link
