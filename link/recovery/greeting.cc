#include "link/recovery/greeting.h"

#include <algorithm>
#include <boost/json.hpp>
#include <utility>

#include "base/parts.h"
#include "base/wire/protocol.h"

namespace moorage::link {
namespace {

namespace json = boost::json;

constexpr size_t kMaxLimits = 8;
constexpr size_t kMaxWordBytes = 16;
constexpr size_t kMaxLost = 10'000;
constexpr std::pair<std::string_view, std::string_view> kMounts[] = {{"tree", "/workspace"},
                                                                     {"home", "/home/user"}};

const json::array* list(const json::object& greeting, std::string_view name) {
  const json::value* value = greeting.if_contains(name);
  return value ? value->if_array() : nullptr;
}

std::string word(const json::string& text) {
  return std::string(std::string_view(text).substr(0, kMaxWordBytes));
}

// "tree/a/b": no part of it leads elsewhere.
bool is_plain(std::string_view path) {
  if (path.find('\0') != std::string_view::npos) return false;
  const auto parts = base::split(path, '/');
  return std::none_of(parts.begin(), parts.end(), [](const std::string_view part) {
    return part.empty() || part == "." || part == "..";
  });
}

}  // namespace

std::string own_protocols() {
  return json::serialize(json::object{{"oldest", base::kProtocols.oldest},
                                      {"newest", base::kProtocols.newest},
                                      {"release", base::kRelease}});
}

bool says(const json::object& greeting, std::string_view flag) {
  const json::value* value = greeting.if_contains(flag);
  return value && value->is_bool() && value->get_bool();
}

void read_facts(const json::object& greeting, base::LinkStatus& status) {
  const json::value* overlay = greeting.if_contains("overlay");
  if (overlay && overlay->is_string()) status.overlay = word(overlay->get_string());
  status.pid_namespace = says(greeting, "pid_namespace");
  status.net_namespace = says(greeting, "net_namespace");
  status.root_inside = says(greeting, "root_inside");
  status.limits.clear();
  const json::array* limits = list(greeting, "limits");
  if (!limits) return;
  for (const json::value& limit : *limits) {
    if (limit.is_string() && status.limits.size() < kMaxLimits)
      status.limits.push_back(word(limit.get_string()));
  }
}

void read_facts(const json::object& greeting, const base::LinkConfig& config,
                base::LinkStatus& status) {
  read_facts(greeting, status);
  const bool held = config.machine_is_ours && !status.net_namespace;
  status.network = held ? base::provider_rules_text(config.provider_rules) : "";
}

std::vector<std::string> read_lost(const json::object& greeting) {
  std::vector<std::string> paths;
  const json::array* lost = list(greeting, "lost");
  if (!lost) return paths;
  for (const json::value& one : *lost) {
    const std::string_view text = one.is_string() ? std::string_view(one.get_string()) : "";
    for (const auto& [prefix, mount] : kMounts) {
      const bool below = text.starts_with(prefix) && text.substr(prefix.size()).starts_with('/');
      if ((text == prefix || below) && is_plain(text) && paths.size() < kMaxLost)
        paths.push_back(std::string(mount) + std::string(text.substr(prefix.size())));
    }
  }
  return paths;
}

}  // namespace moorage::link
