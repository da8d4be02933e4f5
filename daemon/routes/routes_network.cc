// What a workspace may reach: its rules, whether a host passes, and what its sandbox uses.
#include "base/net/host_name.h"
#include "base/net/network_policy.h"
#include "daemon/json/json_object.h"
#include "daemon/routes/routes.h"

namespace moorage::daemon {
namespace {

using base::Verdict;
using boost::json::array;
using boost::json::object;

constexpr uint16_t kHttps = 443;

std::string_view verdict_name(Verdict verdict) {
  return verdict == Verdict::allow ? "allow" : verdict == Verdict::deny ? "deny" : "deny_quietly";
}

void add_rules(array& list, const std::vector<base::NetworkRule>& rules, std::string_view from) {
  for (const auto& rule : rules) {
    list.push_back(object{{"verdict", verdict_name(rule.verdict)},
                          {"host", base::rule_text(rule)},
                          {"from", from},
                          {"reason", rule.reason}});
  }
}

Reply show(Api& api, const Request& request) {
  const auto row =
      workspace::find_workspace(api.store, request.caller, request.parameter(0), Right::read);
  const base::NetworkPolicy policy = api.networks.policy_of(row);
  array rules;
  add_rules(rules, policy.refused_by_operator, "operator");
  add_rules(rules, policy.own, "workspace");
  add_rules(rules, policy.preset, policy.mode);
  object answer{{"network", policy.mode},
                {"summary", api.networks.summary_of(policy.mode)},
                {"rules", std::move(rules)}};
  if (const auto sandbox = api.context.live.running_sandbox(row.id); sandbox.value != 0) {
    if (const auto use = api.networks.use(sandbox)) answer["use"] = use_object(*use);
  }
  return Reply::json(boost::json::serialize(answer), 200, row.id.str());
}

Reply change(Api& api, const Request& request) {
  const auto wanted = body_of(request, [](JsonFields& fields) {
    const auto hosts = [&fields](const char* name) {
      return fields.byte_list(name).value_or(std::vector<std::string>());
    };
    return workspace::RuleChange{hosts("allow"), hosts("deny"), hosts("forget")};
  });
  return workspace_reply(api.updates.change_rules(request.caller, request.parameter(0), wanted));
}

// What a program inside gets to read.
std::string inside_text(const base::NetworkPolicy& policy, const std::string& host, uint16_t port) {
  if (base::allowed_ports(policy, host).empty())
    return "the name does not exist (NXDOMAIN, \"Blocked\")";
  return "connection reset, or refused, at port " + std::to_string(port);
}

Reply check(Api& api, const Request& request) {
  const auto row =
      workspace::find_workspace(api.store, request.caller, request.parameter(0), Right::read);
  const base::NetworkRule asked =
      base::parse_rule(Verdict::deny, request.query_text("host").value_or(""));
  const uint16_t port = asked.ports.empty() ? kHttps : asked.ports.front();
  const base::NetworkPolicy policy = api.networks.policy_of(row);
  const base::Decision decision = base::decide(policy, asked.host, port);
  object answer{{"host", asked.host},
                {"port", port},
                {"verdict", verdict_name(decision.verdict)},
                {"why", base::why(policy, decision)}};
  if (decision.verdict != Verdict::allow) answer["inside"] = inside_text(policy, asked.host, port);
  return Reply::json(boost::json::serialize(answer), 200, row.id.str());
}

}  // namespace

void add_network_routes(Router& router, Api& api) {
  const RouteTable routes(router, api);
  routes.add("GET /v1/workspaces/{}/network", Right::read, show, {.lane = Lane::slow});
  routes.add("POST /v1/workspaces/{}/network", Right::govern, change,
             {.lane = Lane::slow, .keep = Keep::joined, .resume = resumed<&Api::updates>});
  routes.add("GET /v1/workspaces/{}/network/check", Right::read, check, {.query = {"host"}});
}

}  // namespace moorage::daemon
