#include "workspace/access/placement.h"

#include <algorithm>

#include "backends/registry.h"
#include "base/error.h"
#include "base/os/accounts.h"
#include "base/size_text.h"

namespace moorage::workspace {
namespace {

using state_db::WorkspaceLimits;

constexpr const char* kOpen = "open";

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// Looks up the groups once, and only if a rule names some.
class Owner {
 public:
  explicit Owner(uint32_t uid) : uid_(uid) {}

  bool is_among(const std::vector<uint32_t>& users) const {
    return users.empty() || std::find(users.begin(), users.end(), uid_) != users.end();
  }

  // True also if the groups are unknown; `because` then says so.
  bool is_in(const std::vector<uint32_t>& groups, std::string& because) {
    if (groups.empty()) return true;
    if (!asked_) groups_ = base::groups_of_user(uid_);
    asked_ = true;
    if (!groups_) {
      because = "it applies because the host's user database does not list the groups of " +
                base::user_name(uid_);
      return true;
    }
    return std::any_of(groups.begin(), groups.end(), [&](uint32_t gid) {
      return std::find(groups_->begin(), groups_->end(), gid) != groups_->end();
    });
  }

 private:
  const uint32_t uid_;
  bool asked_ = false;
  std::optional<std::vector<uint32_t>> groups_;
};

bool has_all(const Placement::Labels& labels, const Placement::Labels& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const auto& label) {
    const auto found = labels.find(label.first);
    return found != labels.end() && found->second == label.second;
  });
}

std::string number_text(double value) {
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  return text.back() == '.' ? text.substr(0, text.size() - 1) : text;
}
std::string number_text(uint32_t value) { return std::to_string(value); }

// Calls visit(field, option, value in the rule, value in the workspace, value to text) per limit.
template <typename Visit, typename Limits>
void each_limit(const PlacementLimits& rule, Limits& limits, const Visit& visit) {
  const auto bytes = [](uint64_t value) { return base::exact_size_text(value); };
  const auto number = [](auto value) { return number_text(value); };
  const auto disk = [](uint64_t value) {
    return value == 0 ? std::string("none") : base::exact_size_text(value);
  };
  visit("memory_bytes", "memory", rule.memory_bytes, limits.memory_bytes, bytes);
  visit("cpus", "cpus", rule.cpus, limits.cpus, number);
  visit("pids", "pids", rule.pids, limits.pids, number);
  visit("disk_limit_bytes", "disk", rule.disk_bytes, limits.disk_bytes, disk);
}

// 0 means unlimited, as for the disk.
template <typename T>
bool is_beyond(T value, const std::optional<T>& most) {
  return most && (value == T{} || value > *most);
}

}  // namespace

std::optional<backends::Isolation> isolation_of_name(const std::string& name) {
  using backends::Isolation;
  if (name.empty()) return std::nullopt;
  for (const auto level : {Isolation::none, Isolation::container, Isolation::userns,
                           Isolation::gvisor, Isolation::vm}) {
    if (backends::isolation_name(level) == name) return level;
  }
  throw Error(Code::invalid_argument, "unknown isolation level '" + name + "'");
}

void check_rules(const std::vector<PlacementRule>& rules,
                 const std::vector<std::string>& backends) {
  const auto check = [&](const PlacementRule& rule, const std::string& backend) {
    if (std::find(backends.begin(), backends.end(), backend) != backends.end()) return;
    throw Error(Code::invalid_argument, rule.name + ": there is no backend '" + backend + "'",
                "available backends: " + joined(backends));
  };
  for (const auto& rule : rules) {
    for (const auto& backend : rule.backends) check(rule, backend);
    if (!rule.default_backend.empty()) check(rule, rule.default_backend);
  }
}

std::vector<PlacementRule> rules_for(const std::vector<PlacementRule>& rules, uint32_t owner_uid) {
  std::vector<PlacementRule> own;
  Owner owner(owner_uid);
  std::string because;
  for (const auto& rule : rules) {
    if (owner.is_among(rule.users) && owner.is_in(rule.groups, because)) own.push_back(rule);
  }
  return own;
}

Placement::Placement(const Context& context, uint32_t owner_uid, const Labels& labels,
                     std::string name)
    : context_(context), name_(std::move(name)), all_(context.options.placement_rules->get()) {
  Owner owner(owner_uid);
  for (const auto& rule : *all_) {
    std::string because;
    if (owner.is_among(rule.users) && has_all(labels, rule.labels) &&
        owner.is_in(rule.groups, because)) {
      rules_.push_back({&rule, because});
    }
  }
}

Placement::Placement(const Context& context, const state_db::WorkspaceRow& row)
    : Placement(context, row.owner_uid, row.labels, row.name) {}

state_db::Place Placement::place_or(state_db::Place usual) const {
  for (size_t n = rules_.size(); n-- > 0;) {  // backwards, so that the first rule wins
    const auto& rule = *rules_[n].rule;
    if (!rule.default_image.empty()) usual.image = rule.default_image;
    if (rule.default_backend.empty()) continue;
    usual.backend = rule.default_backend;
    usual.runtime = rule.default_runtime;
  }
  return usual;
}

std::string Placement::network_or(const std::string& named) const {
  if (!named.empty()) return named;
  std::string usual = context_.options.default_network;
  for (size_t n = rules_.size(); n-- > 0;) {
    if (!rules_[n].rule->default_network.empty()) usual = rules_[n].rule->default_network;
  }
  return usual;
}

void Placement::check_network(const std::string& network, const std::string& backend) const {
  const auto& known = context_.options.networks;
  if (std::find(known.begin(), known.end(), network) == known.end()) {
    throw Error(Code::invalid_argument, "there is no network '" + network + "'",
                "one of: " + joined(known));
  }
  const auto can = context_.backends.get(backend).known_capabilities();
  if (can.usable && !can.network_none && network != kOpen) {
    throw Error(Code::unsupported,
                "backend " + backend + " cannot restrict the network: its commands use the host's",
                "use --network open, or a backend with isolation");
  }
  for (const auto& holding : rules_) {
    const auto& allowed = holding.rule->networks;
    if (allowed.empty() || std::find(allowed.begin(), allowed.end(), network) != allowed.end())
      continue;
    refuse(holding, "it may not have network " + network + "; allowed: " + joined(allowed),
           name_.empty() ? "request --network " + allowed.front()
                         : "moorage set " + name_ + " --network " + allowed.front());
  }
}

void Placement::restrict_hosts(base::NetworkPolicy& policy) const {
  for (const auto& holding : rules_) {
    const PlacementRule& rule = *holding.rule;
    for (base::NetworkRule refused : rule.refuse_hosts) {
      refused.reason = rule.name;
      policy.refused_by_operator.push_back(std::move(refused));
    }
    if (!rule.hosts.empty()) policy.allowed_by_operator.push_back(rule.hosts);
  }
}

WorkspaceLimits Placement::limits_or(WorkspaceLimits usual) const {
  for (size_t n = rules_.size(); n-- > 0;) {
    each_limit(rules_[n].rule->usual, usual,
               [](const char*, const char*, const auto& value, auto& limit, const auto&) {
                 if (value) limit = *value;
               });
  }
  lower(usual);
  return usual;
}

std::string Placement::lower(WorkspaceLimits& limits) const {
  std::string said;
  for (const auto& holding : rules_) {
    each_limit(holding.rule->most, limits,
               [&](const char*, const std::string& option, const auto& most, auto& limit,
                   const auto& text) {
                 if (!is_beyond(limit, most)) return;
                 said += (said.empty() ? "" : "; ") + option + " " + text(limit) + " -> " +
                         text(*most) + ", as " + holding.rule->name + " allows";
                 limit = *most;
               });
  }
  return said;
}

void Placement::refuse(const Holding& holding, const std::string& what,
                       const std::string& hint) const {
  throw Error(
      Code::permission_denied,
      holding.rule->name + ": " + what + (holding.because.empty() ? "" : "; " + holding.because),
      hint.empty() ? "the administrator of this host can change the rule" : hint);
}

// The first rule that forbids this place.
const Placement::Holding* Placement::forbidding(const std::string& backend,
                                                const std::string& runtime) const {
  for (const auto& holding : rules_) {
    const auto& rule = *holding.rule;
    const auto& allowed = rule.backends;
    if (!allowed.empty() && std::find(allowed.begin(), allowed.end(), backend) == allowed.end())
      return &holding;
    if (!rule.min_isolation) continue;
    const auto can = context_.backends.get(backend).capabilities();
    if (!can.usable || backends::isolation_of(can, runtime) < *rule.min_isolation) return &holding;
  }
  return nullptr;
}

// As options of the CLI; empty if nothing on this host is allowed.
std::string Placement::what_is_allowed() const {
  std::string allowed;
  const auto add = [&](const std::string& option) {
    allowed += (allowed.empty() ? "" : " or ") + option;
  };
  for (const auto& name : context_.backends.names()) {
    const auto can = context_.backends.get(name).capabilities();
    if (!can.usable) continue;
    if (!forbidding(name, "")) {
      add("--backend " + name);
      continue;
    }
    for (const auto& [runtime, isolation] : can.runtimes) {
      if (!forbidding(name, runtime)) add("--backend " + name + " --runtime " + runtime);
    }
  }
  return allowed;
}

void Placement::check_backend_accepts(const state_db::Place& place) const {
  const Holding* holding = forbidding(place.backend, place.runtime);
  if (!holding) return;
  const auto& rule = *holding->rule;
  std::string hint = what_is_allowed();
  if (!hint.empty()) hint = (name_.empty() ? "request " : "moorage move " + name_ + " ") + hint;
  const auto& backends = rule.backends;
  if (!backends.empty() &&
      std::find(backends.begin(), backends.end(), place.backend) == backends.end()) {
    refuse(*holding,
           "it may not run on backend " + place.backend + "; allowed: " + joined(backends), hint);
  }
  const auto can = context_.backends.get(place.backend).capabilities();
  if (!can.usable) {  // so its isolation is unknown
    throw Error(Code::unsupported, "backend " + place.backend + " cannot be used: " + can.reason,
                hint);
  }
  const auto name = [](backends::Isolation level) {
    return std::string(backends::isolation_name(level));
  };
  refuse(*holding,
         "it needs isolation " + name(*rule.min_isolation) + " or stronger; backend " +
             place.backend + (place.runtime.empty() ? "" : " with runtime " + place.runtime) +
             " has " + name(backends::isolation_of(can, place.runtime)),
         hint);
}

void Placement::check_limits(const WorkspaceLimits& limits) const {
  check_limits(limits, {"memory_bytes", "cpus", "pids", "disk_limit_bytes"});
}

void Placement::check_limits(const WorkspaceLimits& limits,
                             const std::set<std::string>& named) const {
  for (const auto& holding : rules_) {
    each_limit(holding.rule->most, limits,
               [&](const char* field, const std::string& option, const auto& most,
                   const auto& limit, const auto& text) {
                 if (!named.contains(field) || !is_beyond(limit, most)) return;
                 const std::string wanted = "--" + option + " " + text(*most);
                 refuse(holding, option + " may be " + text(*most) + " at most, not " + text(limit),
                        name_.empty() ? "request at most " + wanted
                                      : "moorage set " + name_ + " " + wanted);
               });
  }
}

void check_placement(const Context& context, const state_db::WorkspaceRow& row,
                     const state_db::Place& place) {
  const Placement placement(context, row);
  placement.check_backend_accepts(place);
  placement.check_limits(row.policy.limits);
  placement.check_network(placement.network_or(row.policy.network), place.backend);
}

void check_start(const Context& context, const state_db::WorkspaceRow& row) {
  try {
    check_placement(context, row, {row.backend, row.image, row.runtime});
  } catch (Error& error) {
    throw error.add_context("cannot start " + row.name + " (its files are unaffected)");
  }
}

}  // namespace moorage::workspace
