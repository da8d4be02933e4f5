#include "workspace/verbs/sync.h"

#include <algorithm>

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
constexpr std::chrono::seconds kDeadline{30};  // of one question
constexpr size_t kMostTexts = 5;
constexpr size_t kMostName = 1024;
constexpr size_t kMostInside = 100'000;
constexpr size_t kIdDigits = 40;

std::string short_id(const std::string& id) { return id.substr(0, 7); }

// "origin/main", "tag v1"
std::string spoken(std::string_view name) {
  if (name.starts_with(kTags)) return "tag " + std::string(name.substr(kTags.size()));
  return std::string(name.substr(std::string_view("refs/remotes/").size()));
}

std::string notice_of(const ReferenceChanges& changes) {
  if (changes.all == 0 && changes.kept_tags == 0) return "nothing new upstream";
  std::string text;
  for (const std::string& change : changes.texts) text += (text.empty() ? "" : ", ") + change;
  if (changes.all > changes.texts.size())
    text += " and " + std::to_string(changes.all - changes.texts.size()) + " more";
  if (changes.kept_tags > 0) {
    text += (text.empty() ? "" : "; ") + base::count_text(changes.kept_tags, "tag") + " inside " +
            base::verb_text(changes.kept_tags, "differ") + " from upstream's and " +
            base::verb_text(changes.kept_tags, "stay");
  }
  return text;
}

bool is_head(std::string_view name) {
  return name.starts_with(kHead) && (name.size() == kHead.size() || name[kHead.size()] == '/');
}

// Whether git has no place for this name: one of the others is a directory of it, or below it.
bool has_no_place(const References& others, const std::string& name) {
  const auto below = others.lower_bound(name + "/");
  if (below != others.end() && below->first.starts_with(name + "/")) return true;
  for (size_t end = name.rfind('/'); end != std::string::npos && end > 0;
       end = name.rfind('/', end - 1)) {
    if (others.contains(name.substr(0, end))) return true;
  }
  return false;
}

}  // namespace

References parse_references(std::string_view lines) {
  References references;
  while (!lines.empty()) {
    const std::string_view line = base::take_until(lines, '\n');
    const bool plain = line.size() > kIdDigits + 1 && line.size() <= kIdDigits + 1 + kMostName &&
                       line[kIdDigits] == ' ' &&
                       line.find_first_not_of("0123456789abcdef") == kIdDigits;
    if (plain) references.emplace(line.substr(kIdDigits + 1), line.substr(0, kIdDigits));
  }
  return references;
}

ReferenceChanges changes_between(const References& inside, const References& upstream,
                                 const std::string& first) {
  ReferenceChanges changes;
  const auto say = [&](const std::string& name, const std::string& what) {
    ++changes.all;
    const bool leads = name == first;
    if (changes.texts.size() == kMostTexts && !leads) return;
    if (changes.texts.size() == kMostTexts) changes.texts.pop_back();
    changes.texts.insert(leads ? changes.texts.begin() : changes.texts.end(),
                         base::escape_for_message(spoken(name)) + " " + what);
  };
  for (const auto& [name, id] : upstream) {
    const bool is_tag = name.starts_with(kTags);
    if ((!is_tag && !name.starts_with(kRemote)) || is_head(name)) continue;
    const auto known = inside.find(name);
    const bool is_new = known == inside.end();
    if (!is_new && known->second == id) continue;
    if (is_tag && (!is_new || has_no_place(inside, name))) {
      ++changes.kept_tags;
      continue;
    }
    (is_tag ? changes.tags : changes.updates).push_back("update " + name + " " + id + "\n");
    changes.objects.push_back(id);
    say(name, is_new ? "is new" : short_id(known->second) + " -> " + short_id(id));
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
  const References known = parse_references(*inside);
  if (known.size() > kMostInside) {
    throw Error(Code::resource_exhausted, "the workspace has more than 100,000 references",
                "remove those that nobody needs");
  }
  const auto refs = context_.repos.workspace_refs(repo_directory(row.repository));
  return changes_between(known, parse_references(refs->packed_refs),
                         std::string(kRemote) + refs->default_branch);
}

// On another machine, objects that came after the sandbox started are missing.
LiveSandboxPtr Sync::with_objects(const state_db::WorkspaceRow& row, LiveSandboxPtr running,
                                  const std::vector<std::string>& objects,
                                  LiveSandboxes::Use& use) {
  constexpr size_t kAtOnce = 1000;
  bool has_all = true;
  for (size_t at = 0; running->remote && has_all && at < objects.size(); at += kAtOnce) {
    const auto begin = objects.begin() + static_cast<ptrdiff_t>(at);
    const auto count = static_cast<ptrdiff_t>(std::min(kAtOnce, objects.size() - at));
    has_all = has_commits(*running, {begin, begin + count}, kDeadline);
  }
  if (has_all) return running;
  running.reset();
  use.reset();  // or it is busy
  {
    const auto guard = context_.locks.lock(row.id.str(), "sync");
    start_stop_.bring_to_rest(row, "started again for a sync");
  }
  use = context_.live.use(row.id);
  return start_stop_.ensure_running(row);
}

WorkspaceView Sync::sync(const Caller& caller, const std::string& name, const Progress& progress) {
  const auto row = find_workspace(context_.store, caller, name, Right::write);
  leases_.check(caller, row);
  const auto known = state_db::RepositoryTable(context_.store).get(row.repository);
  if (!sees(caller, known)) {
    throw Error(Code::permission_denied,
                "the repository of " + row.name + " is private to " + user_name(row.owner_uid),
                "only its owner may sync it");
  }
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
  auto use = context_.live.use(row.id);
  auto running = start_stop_.ensure_running(row);
  const auto changes = compare(row, *running);
  running = with_objects(row, std::move(running), changes.objects, use);
  const auto writing = leases_.write(caller, row);
  update_references(*running, changes.removals, kDeadline);
  update_references(*running, changes.updates, kDeadline);
  update_references(*running, changes.tags, kDeadline);
  const auto refs = context_.repos.workspace_refs(repo_directory(row.repository));
  if (!refs->default_branch.empty())
    point_remote_head(*running, std::string(kRemote) + refs->default_branch, kDeadline);
  sync_updated.pass();
  views_.follow_base(row);  // it may have been fetched and rebased on before
  const JoinedVerb joined{.workspace = row.id, .notice = notice_of(changes)};
  join_key(context_.store, caller, joined.subject());
  return joined.in(views_.view(state_db::WorkspaceTable(context_.store).get(row.id)));
}

WorkspaceView Sync::resume(const std::string& subject) {
  const auto joined = JoinedVerb::parse(subject);
  return joined.in(views_.look(joined.workspace));
}

}  // namespace moorage::workspace
