#include "workspace/verbs/sync.h"

#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "base/parts.h"
#include "base/size_text.h"
#include "repo_cache/repo_cache.h"
#include "workspace/access/keyed_request.h"
#include "workspace/exec/query.h"

namespace moorage::workspace {
namespace {

MOORAGE_CRASH_POINT(sync_updated, "sync.updated");

constexpr std::string_view kRemote = "refs/remotes/origin/";
constexpr std::string_view kTags = "refs/tags/";
constexpr std::string_view kHead = "refs/remotes/origin/HEAD";
constexpr std::chrono::minutes kDeadline{1};  // of one question
constexpr size_t kMostTexts = 5;
constexpr size_t kIdDigits = 40;

std::string short_id(const std::string& id) { return id.substr(0, 7); }

// "origin/main", "tag v1"
std::string spoken(std::string_view name) {
  if (name.starts_with(kTags)) return "tag " + std::string(name.substr(kTags.size()));
  return std::string(name.substr(std::string_view("refs/remotes/").size()));
}

std::string notice_of(ReferenceChanges changes) {
  if (changes.texts.empty() && changes.kept_tags == 0) return "nothing new upstream";
  const size_t all = changes.texts.size();
  if (all > kMostTexts) changes.texts.resize(kMostTexts);
  std::string text;
  for (const std::string& change : changes.texts) text += (text.empty() ? "" : ", ") + change;
  if (all > kMostTexts) text += " and " + std::to_string(all - kMostTexts) + " more";
  if (changes.kept_tags > 0) {
    text += (text.empty() ? "" : "; ") + base::count_text(changes.kept_tags, "tag") +
            " inside differ from upstream's and stay";
  }
  return text;
}

}  // namespace

References parse_references(std::string_view lines) {
  References references;
  while (!lines.empty()) {
    const std::string_view line = base::take_until(lines, '\n');
    const bool plain = line.size() > kIdDigits + 1 && line[kIdDigits] == ' ' &&
                       line.find_first_not_of("0123456789abcdef") == kIdDigits;
    if (plain) references.emplace(line.substr(kIdDigits + 1), line.substr(0, kIdDigits));
  }
  return references;
}

ReferenceChanges changes_between(const References& inside, const References& upstream,
                                 const std::string& first) {
  ReferenceChanges changes;
  const auto say = [&](const std::string& name, const std::string& what) {
    const std::string text = base::escape_for_message(spoken(name)) + " " + what;
    changes.texts.insert(name == first ? changes.texts.begin() : changes.texts.end(), text);
  };
  for (const auto& [name, id] : upstream) {
    const bool is_tag = name.starts_with(kTags);
    if ((!is_tag && !name.starts_with(kRemote)) || name == kHead) continue;
    const auto known = inside.find(name);
    if (known != inside.end() && known->second == id) continue;
    if (known != inside.end() && is_tag) {
      ++changes.kept_tags;
      continue;
    }
    changes.updates.push_back("update " + name + " " + id + "\n");
    changes.objects.push_back(id);
    say(name, known == inside.end() ? "is new" : short_id(known->second) + " -> " + short_id(id));
  }
  for (const auto& [name, id] : inside) {
    if (!name.starts_with(kRemote) || name == kHead || upstream.contains(name)) continue;
    changes.removals.push_back("delete " + name + "\n");
    say(name, "is gone");
  }
  return changes;
}

ReferenceChanges Sync::compare(const state_db::WorkspaceRow& row,
                               const LiveSandbox& running) const {
  const auto inside = remote_references(running, kDeadline);
  if (!inside) {
    throw Error(Code::conflict, "git in the sandbox did not list its references",
                "look with moorage exec " + row.name + " -- git -C /workspace for-each-ref");
  }
  const auto refs = context_.repos.workspace_refs(repo_directory(row.repository));
  return changes_between(parse_references(*inside), parse_references(refs->packed_refs),
                         std::string(kRemote) + refs->default_branch);
}

// On another machine, objects that came after the sandbox started are missing.
LiveSandboxPtr Sync::with_objects(const state_db::WorkspaceRow& row, LiveSandboxPtr running,
                                  std::vector<std::string> objects) {
  constexpr size_t kMostAsked = 1000;
  if (objects.size() > kMostAsked) objects.resize(kMostAsked);
  if (!running->remote || objects.empty() || has_commits(*running, objects, kDeadline))
    return running;
  running.reset();
  {
    const auto guard = context_.locks.lock(row.id.str(), "sync");
    start_stop_.bring_to_rest(row, "started again for a sync");
  }
  return start_stop_.ensure_running(row);
}

WorkspaceView Sync::sync(const Caller& caller, const std::string& name, const Progress& progress) {
  const auto row = find_workspace(context_.store, caller, name, Right::write);
  leases_.check(caller, row);
  const auto known = state_db::RepositoryTable(context_.store).get(row.repository);
  if (!has_upstream(known.scope)) {
    throw Error(Code::unsupported, row.name + " came from a checkout and has no upstream here",
                "copy newer commits in: git bundle create new.bundle main; moorage cp new.bundle " +
                    row.name + ":/home/user/new.bundle; moorage exec " + row.name +
                    " -- git fetch /home/user/new.bundle main");
  }
  const auto fetched = repositories_.fetch(row.repository, progress);
  if (!fetched.stale_reason.empty()) {
    throw Error(Code::unavailable, "upstream did not answer: " + fetched.stale_reason,
                "nothing was changed; try again later");
  }
  auto running = start_stop_.ensure_running(row);
  const auto changes = compare(row, *running);
  running = with_objects(row, std::move(running), changes.objects);
  const auto use = context_.live.use(row.id);
  const auto writing = leases_.write(caller, row);
  update_references(*running, changes.removals, kDeadline);
  update_references(*running, changes.updates, kDeadline);
  const auto refs = context_.repos.workspace_refs(repo_directory(row.repository));
  if (!refs->default_branch.empty())
    point_remote_head(*running, std::string(kRemote) + refs->default_branch, kDeadline);
  sync_updated.pass();
  const JoinedVerb joined{.workspace = row.id, .notice = notice_of(changes)};
  join_key(context_.store, caller, joined.subject());
  return joined.in(views_.view(state_db::WorkspaceTable(context_.store).get(row.id)));
}

WorkspaceView Sync::resume(const std::string& subject) {
  const auto joined = JoinedVerb::parse(subject);
  return joined.in(views_.look(joined.workspace));
}

}  // namespace moorage::workspace
