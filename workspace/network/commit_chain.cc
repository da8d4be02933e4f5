#include "workspace/network/commit_chain.h"

#include <charconv>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/digest.h"
#include "base/net/push_policy.h"
#include "base/parts.h"

namespace moorage::workspace {
namespace {

constexpr size_t kMostParents = 1'000;
constexpr size_t kMaxTitle = 200;
constexpr size_t kSha1Digits = 40;

using Commits = std::unordered_map<std::string, std::string_view>;  // by name: the content

std::string name_of(std::string_view content, size_t digits) {
  std::string object = "commit " + std::to_string(content.size());
  object.push_back('\0');
  object += content;
  return digits == kSha1Digits ? base::sha1_hex(object) : base::sha256_hex(object);
}

// Each is a line "NAME commit SIZE", the content and a line feed. The name there is not believed.
Commits commits_in(std::string_view batch, size_t digits) {
  Commits commits;
  while (!batch.empty()) {
    std::string_view head = base::take_until(batch, '\n');
    base::take_until(head, ' ');
    if (base::take_until(head, ' ') != "commit") break;
    size_t size = 0;
    const auto [end, error] = std::from_chars(head.data(), head.data() + head.size(), size);
    if (error != std::errc() || end != head.data() + head.size() || size >= batch.size()) break;
    const std::string_view content = batch.substr(0, size);
    commits.emplace(name_of(content, digits), content);
    batch.remove_prefix(size + 1);
  }
  return commits;
}

// "tree NAME", then "parent NAME" lines, then others.
std::vector<std::string> parents_of(std::string_view content) {
  constexpr std::string_view kParent = "parent ";
  std::vector<std::string> parents;
  base::take_until(content, '\n');
  while (content.starts_with(kParent) && parents.size() < kMostParents)
    parents.emplace_back(base::take_until(content, '\n').substr(kParent.size()));
  return parents;
}

std::string title_of(std::string_view content) {
  const size_t message = content.find("\n\n");
  if (message == content.npos) return {};
  content.remove_prefix(message + 2);
  return std::string(base::take_until(content, '\n').substr(0, kMaxTitle));
}

}  // namespace

CommitChain read_commit_chain(std::string_view batch, const std::string& old_id,
                              const std::string& new_id) {
  CommitChain chain;
  const Commits commits = commits_in(batch, new_id.size());
  const auto newest = commits.find(new_id);
  if (newest == commits.end()) return chain;
  chain.has_new = true;
  chain.title = title_of(newest->second);
  std::unordered_set<std::string> seen{new_id};
  std::vector<std::string> open{new_id};
  while (!open.empty()) {
    const auto found = commits.find(open.back());
    open.pop_back();
    if (found == commits.end()) continue;
    ++chain.commits;
    for (std::string& parent : parents_of(found->second)) {
      if (parent == old_id) chain.reaches = true;
      if (parent != old_id && seen.insert(parent).second) open.push_back(std::move(parent));
    }
  }
  return chain;
}

}  // namespace moorage::workspace
