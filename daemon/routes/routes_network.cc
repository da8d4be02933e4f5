// What a workspace may reach: its rules, whether a host passes, and what its sandbox uses.
#include "base/net/host_name.h"
#include "base/net/network_policy.h"
#include "base/net/request_policy.h"
#include "daemon/json/json_object.h"
#include "daemon/routes/routes.h"
#include "state_db/tables/execs.h"
#include "workspace/context/certificates.h"
#include "workspace/context/credentials.h"

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

// The error that a program inside reads. `narrow`: only that request is refused.
std::string inside_text(const base::NetworkPolicy& policy, const base::NetworkRule& asked,
                        uint16_t port, bool narrow) {
  if (base::allowed_ports(policy, asked.host).empty())
    return "the name does not exist (NXDOMAIN, \"Blocked\")";
  if (narrow) return "403, with the reason";
  return "connection reset, or refused, at port " + std::to_string(port);
}

// Programs that do not read the store's authority fail where TLS ends outside of the sandbox.
void note_variables(Api& api, const state_db::WorkspaceRow& row, const std::string& host,
                    array& notes) {
  constexpr size_t kLatest = 20;
  state_db::ExecTable execs(api.store);
  auto ours = workspace::certificate_variables();
  for (const auto& listed : execs.list({.workspace = row.id, .limit = kLatest})) {
    const auto theirs = execs.get(listed.id).request.environment;
    std::erase_if(ours, [&](const auto& variable) {
      const auto found = theirs.find(variable.first);
      if (found == theirs.end() || found->second == variable.second) return false;
      notes.emplace_back(variable.first + " was set for " + listed.id.str() +
                         ": its programs do not trust " + host + " unless " + found->second +
                         " has the certificates of " + variable.second);
      return true;
    });
  }
}

Reply check(Api& api, const Request& request) {
  const auto row =
      workspace::find_workspace(api.store, request.caller, request.parameter(0), Right::read);
  const base::NetworkRule asked =
      base::parse_rule(Verdict::deny, request.query_text("host").value_or(""));
  const uint16_t port = asked.ports.empty() ? kHttps : asked.ports.front();
  const base::NetworkPolicy policy = api.networks.policy_of(row);
  const std::string method = asked.methods.empty() ? "GET" : asked.methods.front();
  const std::string path = asked.path.empty() ? "/" : asked.path;
  const base::HttpRequest wanted{method, path};
  const bool narrow = is_narrow(asked);
  const base::Decision decision =
      base::decide(policy, asked.host, port, narrow ? &wanted : nullptr);
  const bool allowed = decision.verdict == Verdict::allow;
  object answer{{"host", asked.host},
                {"port", port},
                {"verdict", verdict_name(decision.verdict)},
                {"why", base::why(policy, decision)}};
  if (!allowed) answer["inside"] = inside_text(policy, asked, port, narrow);
  array notes;
  const auto scopes = workspace::scopes_of(workspace::credentials_of(api.store, row));
  if (allowed && base::judges_requests(policy, scopes, asked.host, port)) {
    notes.emplace_back("its requests are judged one by one, so TLS ends outside of the sandbox");
    note_variables(api, row, asked.host, notes);
  }
  answer["notes"] = std::move(notes);
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
