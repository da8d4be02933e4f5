// Speaks to the moorage-egress of a sandbox, by the messages of egress/control.h. What it answers
// is untrusted: it reads hostile bytes. Not for several threads at once.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/net/network_settings.h"
#include "base/os/fd.h"

namespace moorage::backends {

inline constexpr const char* kEgressSocket = "egress.sock";  // in the sandbox's directory

// A listening socket at that path, for Backend::start_egress.
Fd listen_egress(const std::string& path);

class EgressClient {
 public:
  // Throws unavailable or not_found: none runs there.
  explicit EgressClient(const std::string& path);

  // Sends one message; returns what follows the expected word of the answer. Throws unavailable if
  // it has ended, deadline_exceeded if it does not answer in time, corrupted for another answer,
  // and io for what an "error" says.
  std::string ask(const std::string& message, const std::string& expected,
                  std::chrono::milliseconds deadline, std::span<const int> fds = {});
  // Whether we share a protocol (base/wire/protocol.h); otherwise it must be replaced.
  bool shares_a_protocol(std::chrono::milliseconds deadline);
  // Returns how many open connections it reset.
  size_t configure(const base::NetworkSettings& settings, std::chrono::milliseconds deadline);
  void set_line(int line, std::chrono::milliseconds deadline);
  // For hosts whose TLS ends there: PEM of an authority with its key, and a file of the authorities
  // by which the hosts themselves are verified.
  void set_authorities(const std::string& pem, int roots, std::chrono::milliseconds deadline);
  // The secret comes out of the pipe.
  void give_secret(const std::string& credential, int pipe, std::chrono::milliseconds deadline);
  void refuse_secret(const std::string& credential, const std::string& why,
                     std::chrono::milliseconds deadline);
  void answer_push(const base::PushAnswer& answer, std::chrono::milliseconds deadline);
  void give_stream(uint64_t number, int stream, std::chrono::milliseconds deadline);
  void refuse_stream(uint64_t number, const std::string& why, std::chrono::milliseconds deadline);
  // Of the command with that control group.
  std::vector<base::Sighting> seen_by(uint64_t cgroup, std::chrono::milliseconds deadline);
  void follow(uint64_t after, std::chrono::milliseconds deadline);
  // After follow(): the next message that has come, without waiting. Empty: none. Throws
  // unavailable: it ended.
  struct Need {
    std::string credential;
  };
  struct Stream {  // for a git request over ssh
    uint64_t number = 0;
    std::string credential;
    std::string service;
    std::string path;
  };
  using News = std::variant<base::Sighting, base::NetworkUse, Need, base::PushQuestion, Stream>;
  std::optional<News> next();
  int fd() const { return socket_.get(); }

 private:
  std::string receive(std::chrono::milliseconds deadline);
  Fd socket_;
};

}  // namespace moorage::backends
