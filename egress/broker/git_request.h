// Git's requests over HTTP, as a smart server gets them (git's http-protocol and pack-protocol
// documents): which repository, in which direction, and what a push would change.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/net/push_policy.h"
#include "egress/broker/http_message.h"

namespace moorage::egress {

struct GitRequest {
  std::string repository;  // the path as it was sent: "/acme/shop.git"
  bool push = false;       // else a fetch
  bool transfers = false;  // the request that moves objects; else the one that lists refs
};
// Empty: not a request of git's smart protocol.
std::optional<GitRequest> git_request(std::string_view method, std::string_view target);

bool is_fetch_body(const RequestHead& head);  // of the request that moves objects

// Why the request must be refused, because it could change a repository in another way than by a
// push whose commands are read here: an unusual spelling, WebDAV, a compressed body. Empty: it
// cannot, or it is such a push.
std::string hidden_push(const RequestHead& head);

using base::PushCommand;

// The commands at the beginning of a push; the pack follows them.
class PushHead {
 public:
  enum class State { incomplete, complete, invalid };
  // `body`: all that has come of it so far.
  State read(std::string_view body);
  const std::vector<PushCommand>& commands() const { return commands_; }  // none: a probe
  const std::string& trouble() const { return trouble_; }                 // why it is invalid

  bool can_report() const;  // whether the program reads refusal()
  // The answer that refuses all of them, in the form that git shows: a reason for each ref, in the
  // order of commands().
  std::string refusal(const std::vector<std::string>& reasons) const;

  static constexpr size_t kMaxBytes = 256 << 10;
  static constexpr size_t kMaxCommands = 1'000;

 private:
  State fail(std::string why);
  bool take(std::string_view line);
  bool has(std::string_view capability) const;

  std::vector<PushCommand> commands_;
  std::string capabilities_;
  std::string trouble_;
};

inline constexpr const char* kPushAnswerType = "application/x-git-receive-pack-result";

}  // namespace moorage::egress
