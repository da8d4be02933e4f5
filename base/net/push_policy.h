// Which refs of a git repository a sandbox may push, and the question that moorage-egress asks the
// daemon about a push: whether it was approved, and whether it rewrites history.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moorage::base {

enum class PushMode {
  refuse,  // every push
  ask,     // all that nobody approved
  allow,   // nothing but what no mode allows: other refs, deletions and rewrites
};

struct PushPolicy {
  PushMode mode = PushMode::ask;
  std::vector<std::string> refs;  // patterns; empty: kBranches
};

inline constexpr const char* kBranches = "refs/heads/*";

// A full name in ASCII that git-check-ref-format(1) accepts, "refs/heads/main", and that no server
// reads in another way.
bool is_ref(std::string_view text);
// Of a SHA-1 or SHA-256, in lower case.
bool is_object_id(std::string_view text);
bool is_zero_id(std::string_view id);  // no object: the ref does not exist, or shall not

// A pattern is a ref, or has one "*" in it, for one or more characters ("/" is one). Throws
// invalid_argument.
void check_ref_pattern(std::string_view pattern);
bool may_push(const PushPolicy& policy, std::string_view ref);
std::string patterns_text(const PushPolicy& policy);  // "refs/heads/agent/*, refs/tags/*"

struct PushCommand {
  std::string ref;
  std::string old_id;  // zeros: the ref must not exist
  std::string new_id;  // zeros: delete it
  bool operator==(const PushCommand&) const = default;
};

struct PushQuestion {
  uint64_t id = 0;         // of this egress
  std::string repository;  // "https://git.example.com/acme/shop.git", as the program named it
  std::vector<PushCommand> commands;
};

struct PushAnswer {
  uint64_t id = 0;
  std::vector<std::string> reasons;  // against each command, in their order; all empty: it may pass
};

inline constexpr size_t kMaxPushed = 32;  // refs in one push

std::string to_json(const PushQuestion& question);
std::string to_json(const PushAnswer& answer);
// Throw invalid_argument.
PushQuestion read_push_question(std::string_view json);
PushAnswer read_push_answer(std::string_view json);

}  // namespace moorage::base
