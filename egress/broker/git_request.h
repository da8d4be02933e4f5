// Git's requests over HTTP, as a smart server gets them (git's http-protocol and pack-protocol
// documents): which repository, in which direction, and what a push would change.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moorage::egress {

struct GitRequest {
  std::string repository;  // the path, without ".git": "/acme/shop"
  bool push = false;       // else a fetch
  bool transfers = false;  // the request that moves objects; else the one that lists refs
};
// Empty: not a request of git's smart protocol.
std::optional<GitRequest> git_request(std::string_view method, std::string_view target);

struct PushCommand {
  std::string ref;
  std::string old_id;  // 40 or 64 hex digits; zeros: the ref must not exist
  std::string new_id;  // zeros: delete it
};

// The commands at the beginning of a push; the pack follows them.
class PushHead {
 public:
  enum class State { incomplete, complete, invalid };
  // `body`: all that has come of it so far.
  State read(std::string_view body);
  const std::vector<PushCommand>& commands() const { return commands_; }  // none: a probe
  const std::string& trouble() const { return trouble_; }                 // why it is invalid

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
