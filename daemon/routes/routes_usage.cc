// GET /v1/du: waits, without a thread, for an up-to-date measurement of the store
// (workspace/upkeep/store_usage.h) and returns the caller's part of it.
#include <set>
#include <utility>

#include "base/error.h"
#include "daemon/json/json_object.h"
#include "daemon/routes/routes.h"

namespace moorage::daemon {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using workspace::StoreUse;

constexpr milliseconds kFreshFor{1'000};
constexpr milliseconds kPatience{75'000};  // longer than a measurement takes
constexpr milliseconds kLookAgain{50};

JsonObject workspace_object(const StoreUse& use, const workspace::WorkspaceUse& one) {
  const auto& row = one.row;
  JsonObject base{{"repo", row.repository.str()}, {"commit", row.base_commit}};
  for (const auto& repository : use.repositories) {
    const auto tree = repository.tree_bytes.find(row.base_commit);
    if (repository.row.id != row.repository || tree == repository.tree_bytes.end()) continue;
    base["bytes"] = tree->second;
    base["shared_by"] = use.shared_by(row.repository, row.base_commit);
  }
  return {{"id", row.id.str()},
          {"name", row.name},
          {"owner", row.owner_uid},
          {"owner_name", workspace::user_name(row.owner_uid)},
          {"state", state_db::state_name(row.state)},
          {"edits_bytes", one.edits_bytes},
          {"snapshot_bytes", one.snapshot_bytes},
          {"journal_bytes", one.journal_bytes},
          {"complete", one.complete},
          {"base", std::move(base)}};
}

JsonObject repository_object(const StoreUse& use, const workspace::RepositoryUse& one) {
  boost::json::array trees;
  for (const auto& [commit, bytes] : one.tree_bytes) {
    trees.push_back(JsonObject{
        {"commit", commit}, {"bytes", bytes}, {"shared_by", use.shared_by(one.row.id, commit)}});
  }
  return {{"id", one.row.id.str()},
          {"name", lossy_utf8(one.row.name)},
          {"mirror_bytes", one.mirror_bytes},
          {"trees", std::move(trees)}};
}

class UsageSource : public BodySource {
 public:
  UsageSource(Api& api, workspace::Caller caller, std::optional<base::WorkspaceId> only)
      : api_(api), caller_(std::move(caller)), only_(only) {}

  Step read() override {
    const auto use = api_.usage.last();
    const bool fresh = use && (use->began >= asked_ || use->ended >= asked_ - kFreshFor);
    if (fresh || (use && Clock::now() > asked_ + kPatience)) return {text(*use), Next::end, {}};
    if (Clock::now() > asked_ + kPatience) {
      throw base::Error(base::Code::unavailable, "the store is still being measured",
                        "try again in a minute");
    }
    if (!std::exchange(requested_, true)) api_.usage.request();
    return {{}, Next::wait, kLookAgain};
  }

 private:
  bool sees(const state_db::WorkspaceRow& row) const {
    if (only_) return row.id == *only_;
    return workspace::sees(caller_, row);
  }

  std::string text(const StoreUse& use) const {
    boost::json::array workspaces;
    std::set<base::RepoId> used;
    for (const auto& one : use.workspaces) {
      if (!sees(one.row)) continue;
      workspaces.push_back(workspace_object(use, one));
      used.insert(one.row.repository);
    }
    boost::json::array repositories;
    for (const auto& one : use.repositories) {
      const bool shown = used.contains(one.row.id) || (caller_.root() && !only_);
      if (shown) repositories.push_back(repository_object(use, one));
    }
    JsonObject answer{{"as_of", base::format_utc(use.wall_ms)},
                      {"complete", use.complete},
                      {"workspaces", std::move(workspaces)},
                      {"repos", std::move(repositories)}};
    if (!only_) {
      auto& exports = api_.spools;
      answer["exports_bytes"] = caller_.root() ? exports.bytes() : exports.bytes_of(caller_.uid);
    }
    if (caller_.root() && !only_) put_store(answer, use);
    return boost::json::serialize(answer);
  }

  void put_store(JsonObject& answer, const StoreUse& use) const {
    JsonObject parts;
    for (size_t i = 0; i < use.parts.size(); ++i)
      parts[std::string(workspace::kStorePartNames.at(i)) + "_bytes"] = use.parts.at(i);
    parts["total_bytes"] = use.total_bytes();
    answer["store"] = std::move(parts);
    answer["space"] = free_object(space_of(api_.context.options.store));
  }

  Api& api_;
  const workspace::Caller caller_;
  const std::optional<base::WorkspaceId> only_;
  const Clock::time_point asked_ = Clock::now();
  bool requested_ = false;
};

Reply disk_usage(Api& api, const Request& request) {
  std::optional<base::WorkspaceId> only;
  if (const auto name = request.query_text("workspace"))
    only = workspace::find_with_deleted(api.store, request.caller, *name, Right::read).id;
  return Reply::stream(std::make_unique<UsageSource>(api, request.caller, only), kJsonType);
}

}  // namespace

void add_usage_routes(Router& router, Api& api) {
  RouteTable(router, api).add("GET /v1/du", Right::read, disk_usage, {.query = {"workspace"}});
}

}  // namespace moorage::daemon
