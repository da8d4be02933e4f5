// Ids are types, so that an exec's id is never passed as a workspace's. On the wire, on disk and in
// logs an id is a prefix and a decimal number: "ws_12", "ex_340". The database assigns the numbers
// and never reuses them; 0 means "none".
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace moorage::base {

std::string format_id(std::string_view prefix, int64_t value);
std::optional<int64_t> parse_id(std::string_view prefix, std::string_view text);

// A text as the argument of a template.
template <size_t Bytes>
struct IdPrefix {
  consteval IdPrefix(const char (&from)[Bytes]) { std::copy_n(from, Bytes, text); }
  char text[Bytes];
};

template <IdPrefix Prefix>
struct Id {
  static constexpr std::string_view kPrefix = Prefix.text;
  int64_t value = 0;
  explicit operator bool() const { return value != 0; }
  friend auto operator<=>(const Id&, const Id&) = default;
  std::string str() const { return format_id(kPrefix, value); }
  static std::optional<Id> parse(std::string_view text) {
    if (auto number = parse_id(kPrefix, text)) return Id{*number};
    return std::nullopt;
  }
};

using RepoId = Id<"repo">;
using LayerId = Id<"ly">;
using WorkspaceId = Id<"ws">;
using SandboxId = Id<"sb">;
using ExecId = Id<"ex">;
using SnapshotId = Id<"sn">;
using BestOfId = Id<"bo">;
using AttemptId = Id<"at">;
using ApprovalId = Id<"ap">;

}  // namespace moorage::base

template <moorage::base::IdPrefix Prefix>
struct std::hash<moorage::base::Id<Prefix>> {
  size_t operator()(const moorage::base::Id<Prefix>& id) const {
    return std::hash<int64_t>{}(id.value);
  }
};
