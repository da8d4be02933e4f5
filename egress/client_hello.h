// The first message of a TLS client, read without taking part in the handshake: OpenSSL parses it
// from the bytes that came so far, and this asks for the server's name (SNI, RFC 6066). The bytes
// stay with the caller, who passes them on unchanged. An encrypted hello (ECH) needs no care:
// nobody in a sandbox gets a key for it, so the extension is only ever GREASE, and the outer name
// counts.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace moorage::egress {

class ClientHello {
 public:
  ClientHello();
  enum class State {
    incomplete,
    complete,
    invalid,  // not TLS, or larger than kMaxBytes
  };
  // More of what the client sent.
  State add(std::string_view bytes);
  // When complete: the name as it was sent. Empty: the client sent none, or a list of several.
  const std::optional<std::string>& server_name() const { return server_name_; }

  static constexpr size_t kMaxBytes = 64 << 10;

 private:
  struct Free {
    void operator()(void* ssl) const;
  };
  std::unique_ptr<void, Free> ssl_;
  size_t size_ = 0;
  State state_ = State::incomplete;
  std::optional<std::string> server_name_;
};

// The fatal alert "unrecognized_name": programs report it as a TLS error, at once.
std::string_view unrecognized_name_alert();

}  // namespace moorage::egress
