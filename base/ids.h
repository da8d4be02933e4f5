// Ids are types, so that an exec's id is never passed as a workspace's. On the wire, on disk and in
// logs an id is a prefix and a decimal number: "ws_12", "ex_340". The database assigns the numbers
// and never reuses them; 0 means "none".
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace moorage::base {

std::string format_id(std::string_view prefix, int64_t value);
std::optional<int64_t> parse_id(std::string_view prefix, std::string_view text);

template <typename Tag>
struct Id {
  int64_t value = 0;
  explicit operator bool() const { return value != 0; }
  friend auto operator<=>(const Id&, const Id&) = default;
  std::string str() const { return format_id(Tag::kPrefix, value); }
  static std::optional<Id> parse(std::string_view text) {
    if (auto number = parse_id(Tag::kPrefix, text)) return Id{*number};
    return std::nullopt;
  }
};

struct RepoTag {
  static constexpr std::string_view kPrefix = "repo";
};
struct LayerTag {
  static constexpr std::string_view kPrefix = "ly";
};
struct WorkspaceTag {
  static constexpr std::string_view kPrefix = "ws";
};
struct SandboxTag {
  static constexpr std::string_view kPrefix = "sb";
};
struct ExecTag {
  static constexpr std::string_view kPrefix = "ex";
};
struct SnapshotTag {
  static constexpr std::string_view kPrefix = "sn";
};
struct BestOfTag {
  static constexpr std::string_view kPrefix = "bo";
};
struct AttemptTag {
  static constexpr std::string_view kPrefix = "at";
};

using RepoId = Id<RepoTag>;
using LayerId = Id<LayerTag>;
using WorkspaceId = Id<WorkspaceTag>;
using SandboxId = Id<SandboxTag>;
using ExecId = Id<ExecTag>;
using SnapshotId = Id<SnapshotTag>;
using BestOfId = Id<BestOfTag>;
using AttemptId = Id<AttemptTag>;

}  // namespace moorage::base

template <typename Tag>
struct std::hash<moorage::base::Id<Tag>> {
  size_t operator()(const moorage::base::Id<Tag>& id) const {
    return std::hash<int64_t>{}(id.value);
  }
};
