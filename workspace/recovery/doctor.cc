#include "workspace/recovery/doctor.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "base/clock.h"
#include "base/os/files.h"
#include "repo_cache/base_tree.h"
#include "repo_cache/repo_cache.h"
#include "state_db/store.h"
#include "workspace/context/try_step.h"
#include "workspace/recovery/seen.h"

namespace moorage::workspace {
namespace {

using state_db::IntegrityState;
using state_db::SandboxState;
using state_db::WorkspaceState;

constexpr std::chrono::milliseconds kAgain{1'500};
constexpr std::chrono::milliseconds kPlacesPatience{20'000};
constexpr std::chrono::milliseconds kSweepPatience{30'000};
constexpr const char* kReconcile = "the interrupted step is finished or undone";

std::string text_of_state(const auto& row) { return std::string(state_db::state_name(row.state)); }

}  // namespace

std::string_view severity_name(Severity severity) {
  constexpr std::array<std::string_view, 3> kNames{"note", "warning", "error"};
  return kNames.at(static_cast<size_t>(severity));
}

bool Diagnosis::clean() const {
  return std::all_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.repaired || finding.severity == Severity::note;
  });
}

Diagnosis Doctor::look(bool deep) {
  const auto answers = reconciler_.machines().ask(kPlacesPatience);
  Diagnosis diagnosis{look_once(deep, answers)};
  if (diagnosis.findings.empty()) return diagnosis;
  std::this_thread::sleep_for(kAgain);
  const auto again = look_once(deep, answers);
  std::erase_if(diagnosis.findings, [&](const Finding& finding) {
    return std::find(again.begin(), again.end(), finding) == again.end();
  });
  return diagnosis;
}

Diagnosis Doctor::fix(bool deep) {
  Diagnosis before = look(deep);
  if (before.findings.empty()) return before;
  reconciler_.periodic();
  reconciler_.machines().sweep(/*now=*/true);
  reconciler_.machines().wait(kSweepPatience);
  for (const auto& finding : before.findings) {
    try_step("doctor.mend", finding.subject, [&] { mend(finding); });
  }
  const Diagnosis after = look(deep);
  for (auto& finding : before.findings) {
    const auto& left = after.findings;
    finding.repaired =
        !finding.mend.empty() && std::find(left.begin(), left.end(), finding) == left.end();
  }
  for (const auto& finding : after.findings) {
    auto& all = before.findings;
    if (std::find(all.begin(), all.end(), finding) == all.end()) all.push_back(finding);
  }
  return before;
}

Doctor::Findings Doctor::look_once(bool deep, const std::vector<PlaceAnswer>& answers) {
  Findings found;
  const auto part = [&](const char* check, const auto& look) {
    try {
      look();
    } catch (const Error& error) {
      found.push_back({check, Severity::error, "",
                       "cannot check " + std::string(check) + ": " + error.message(), "",
                       error.hint()});
    }
  };
  part("database", [&] { database(found); });
  part("steps", [&] { steps(found); });
  part("sandboxes", [&] { sandboxes(found); });
  part("execs", [&] { execs(found, deep); });
  part("layers", [&] { layers(found); });
  part("archives", [&] { archives(found, deep); });
  part("journals", [&] { journals(found); });
  part("integrity", [&] { integrity(found); });
  part("repositories", [&] { repositories(found, deep); });
  part("mounts", [&] { mounts(found); });
  part("store", [&] { store(found); });
  part("replica", [&] { replica(found); });
  part("machines", [&] { machines(found, answers); });
  return found;
}

// The text contains no changing numbers: a finding must be identical a moment later.
void Doctor::replica(Findings& found) const {
  constexpr int64_t kLate_ms = 5 * 60'000;
  if (!replica_.is_on()) return;
  const ReplicaStatus status = replica_.status();
  const std::string subject = status.directory;
  if (!status.problem.empty()) {
    found.push_back({"replica", Severity::error, subject,
                     "the replica is not being updated: " + status.problem, "", status.hint});
  } else if (status.behind_ms && *status.behind_ms > kLate_ms) {
    found.push_back({"replica", Severity::error, subject,
                     "the replica is more than 5 minutes behind", "",
                     "check that its disk or server responds and is fast enough"});
  }
  for (const auto& note : status.notes)
    found.push_back({"replica", Severity::warning, subject, "in the replica: " + note, "",
                     "moorage doctor shows problems of the store"});
}

std::string Doctor::mend_of(state_db::Orphan what) {
  const auto decided = decide(what);
  if (decided == state_db::Repair::keep_aside) return "it is moved to lost/; nothing is deleted";
  if (decided != state_db::Repair::undo) return {};
  return what == state_db::Orphan::sandbox ? "it is ended" : "it is removed";
}

bool Doctor::at_work(const std::string& key) { return !lock_if_free(context_, key); }

void Doctor::database(Findings& found) {
  const std::string directory = context_.options.store;
  for (const auto& problem : context_.store.check()) {
    found.push_back({"database", Severity::error, "state.db", problem, "",
                     "stop mooraged, copy " + directory +
                         ", then: sqlite3 state.db 'REINDEX', or restore state.db from a backup"});
  }
  if (!context_.store.repaired().empty()) {
    found.push_back(
        {"database", Severity::note, "state.db", "at the last start " + context_.store.repaired()});
  }
  for (const auto& problem : context_.store.check_id_ranges()) {
    found.push_back({"id ranges", Severity::error, "state.db", problem, "",
                     "restart mooraged; if this persists, report it"});
  }
  const auto last = context_.store.events(context_.store.last_event() - 1, 1);
  const int64_t now_ms = context_.store.clock().wall_ms();
  if (!last.empty() && last.front().wall_ms > now_ms + 60'000) {
    found.push_back({"clock", Severity::note, "",
                     "the clock went back: the last event was written at " +
                         base::format_utc(last.front().wall_ms),
                     "", "nothing is deleted because of this; correct the clock"});
  }
}

// Rows in a transitional state although no verb is running on them.
void Doctor::steps(Findings& found) {
  for (const auto& row : unsettled_workspaces(context_)) {
    if (row.state == WorkspaceState::failed || at_work(row.id.str())) continue;
    found.push_back({"steps", Severity::warning, row.id.str(),
                     row.name + " is " + text_of_state(row) + ", but no operation is running on it",
                     kReconcile});
  }
  for (const auto& row : state_db::RepositoryTable(context_.store).list()) {
    using state_db::RepositoryState;
    if (row.state != RepositoryState::cloning && row.state != RepositoryState::fetching) continue;
    if (decide(row.state, see(context_, repositories_, row)) == state_db::Repair::wait) continue;
    found.push_back({"steps", Severity::warning, row.id.str(),
                     row.name + " is " + text_of_state(row) + ", but no fetch is running",
                     kReconcile});
  }
}

void Doctor::sandboxes(Findings& found) {
  const auto seen = see_sandboxes(context_);
  for (const auto& row : seen.rows) {
    if (at_work(row.workspace.str())) continue;
    const std::string name = row.id.str() + " of " + row.workspace.str();
    const bool listed = seen.listed.contains(row.name);
    if (row.state != SandboxState::running) {
      found.push_back({"steps", Severity::warning, row.id.str(),
                       name + " is " + text_of_state(row) + ", but no operation is running on it",
                       kReconcile});
    } else if (decide(row.state, see(row)) != state_db::Repair::adopt) {
      found.push_back({"sandboxes", Severity::error, row.id.str(),
                       name + " should be running, but its first process is gone",
                       "it is removed; the next exec starts a new one"});
    } else if (!listed || !base::path_exists(context_.options.sandbox_directory(row.id.str()))) {
      found.push_back({"sandboxes", Severity::error, row.id.str(),
                       name + " is running, but " +
                           (listed ? "its directory is gone: it is unreachable"
                                   : row.backend + " does not list " + row.name),
                       "", "moorage stop " + row.workspace.str()});
    }
  }
  for (const auto& [name, backend] : seen.unlisted) {
    found.push_back({"sandboxes", Severity::error, name,
                     "the sandbox " + name + " has a moorage name, but state.db does not list it",
                     mend_of(state_db::Orphan::sandbox)});
  }
  for (const auto& [name, has_id] : seen.directories) {
    found.push_back({"sandboxes", Severity::warning, context_.options.sandbox_directory(name),
                     "the directory sandboxes/" + name + " belongs to no known sandbox",
                     has_id ? mend_of(state_db::Orphan::sandbox_directory) : "",
                     has_id ? "" : "examine it, then remove it"});
  }
}

void Doctor::integrity(Findings& found) {
  const auto known = state_db::IntegrityTable(context_.store).all();
  for (const auto& row : state_db::WorkspaceTable(context_.store).list()) {
    const auto answer = known.find(row.id);
    if (row.state != WorkspaceState::ready || answer == known.end()) continue;
    if (answer->second.state == IntegrityState::changed_outside) {
      found.push_back({"integrity", Severity::warning, row.id.str(),
                       row.name + " was changed outside Moorage: " + answer->second.reason,
                       "its current files are accepted", "", Repair::accept_files});
    }
    const bool lost = answer->second.state == IntegrityState::lost;
    if (lost || answer->second.state == IntegrityState::needs_repair) {
      found.push_back({"integrity", Severity::error, row.id.str(),
                       row.name + (lost ? " is lost: " : " needs repair: ") + answer->second.reason,
                       "",
                       (lost ? "restore the missing files" : "fix the cause") +
                           (", then: moorage start " + row.name)});
    }
  }
}

void Doctor::repositories(Findings& found, bool deep) {
  for (const auto& row : state_db::RepositoryTable(context_.store).list()) {
    using state_db::RepositoryState;
    const auto decided = decide(row.state, see(context_, repositories_, row));
    if (row.state == RepositoryState::evicted || decided == state_db::Repair::wait) continue;
    const bool fetched = has_upstream(row.scope);
    const std::string mend = fetched ? "it is cloned again" : "";
    const Repair repair = fetched ? Repair::clone_again : Repair::none;
    const std::string command = fetched ? "moorage repo fetch " + row.id.str()
                                        : "import it again from its source: moorage "
                                          "create --from DIR, or moorage import FILE";
    if (row.state == RepositoryState::broken) {
      // Nobody needs it: its first clone was interrupted, and the next use resumes it.
      state_db::WorkspaceQuery standing;
      standing.repository = row.id;
      const bool needed = !state_db::WorkspaceTable(context_.store).list(standing).empty();
      found.push_back({"repositories", needed ? Severity::warning : Severity::note, row.id.str(),
                       row.name + " has a broken mirror: " + row.reason, "", command});
    } else if (decided == state_db::Repair::redo) {
      found.push_back({"repositories", fetched ? Severity::warning : Severity::error, row.id.str(),
                       "the mirror of " + row.name + " is gone", mend, command, repair});
    } else if (deep && row.state == RepositoryState::ready) {
      try {
        context_.repos.check(repo_directory(row.id), std::chrono::minutes(10));
      } catch (const Error& error) {
        found.push_back({"repositories", Severity::error, row.id.str(),
                         "the mirror of " + row.name + " is damaged: " + error.message(), mend,
                         command, repair});
      }
    }
    base_trees(found, row, deep);
  }
}

void Doctor::base_trees(Findings& found, const state_db::RepositoryRow& row, bool deep) {
  const auto& trees = context_.base_trees;
  const std::string repo = repo_directory(row.id);
  const auto seen = see_base_trees(context_, row.id);
  for (const auto& tree : seen.rows) {
    const std::string subject = row.id.str() + "/" + tree.commit;
    if (at_work(row.id.str() + "." + tree.commit)) continue;
    if (is_torn(tree)) continue;  // its next use makes it again in any case
    std::string damage;
    if (!trees.exists(repo, tree.commit))
      damage = "it is gone";
    else if (!trees.whole(repo, tree.commit))
      damage = "part of it is missing";
    else if (deep)
      damage = trees.damage(repo, tree.commit);
    if (!damage.empty()) {
      found.push_back(
          {"base trees", Severity::warning, subject,
           "the base tree " + tree.commit + " of " + row.name + " is damaged: " + damage,
           "it is made again", "", Repair::remake_base_tree});
    } else if (const auto why = repositories_.sync_failure(row.id, tree.commit);
               !tree.synced && !why.empty()) {
      found.push_back({"base trees", Severity::note, subject,
                       "the base tree " + tree.commit + " could not be synced; retrying: " + why});
    }
  }
  for (const auto& commit : seen.unlisted) {
    if (at_work(row.id.str() + "." + commit)) continue;
    found.push_back({"base trees", Severity::warning, row.id.str() + "/" + commit,
                     "the base tree " + commit + " of " + row.name + " is not in state.db",
                     mend_of(state_db::Orphan::base_tree)});
  }
  for (const auto& name : seen.leftovers) {
    const bool damaged = repo_cache::BaseTrees::is_kept(name);
    if (at_work(row.id.str() + "." + name.substr(0, 40))) continue;
    found.push_back({"base trees", damaged ? Severity::note : Severity::warning,
                     row.id.str() + "/" + name,
                     damaged ? "a damaged base tree is kept because sandboxes started earlier may "
                               "still use it; it is removed after they end"
                             : "an interrupted checkout left files behind",
                     damaged ? "" : mend_of(state_db::Orphan::base_tree_leftover)});
  }
}

// Repairs that the reconciler does not make by itself.
void Doctor::mend(const Finding& finding) {
  const std::string& subject = finding.subject;
  const size_t slash = subject.find('/');
  const auto repository = base::RepoId::parse(subject.substr(0, slash));
  switch (finding.repair) {
    case Repair::none:
      return;
    case Repair::accept_files:
      return sealing_.accept(
          state_db::WorkspaceTable(context_.store).get(base::WorkspaceId::parse(subject).value()));
    case Repair::clone_again:
      context_.repos.mark_suspect(repo_directory(repository.value()));
      repositories_.fetch(*repository, {});
      return;
    case Repair::remake_base_tree:
      return repositories_.remake_base_tree(repository.value(), subject.substr(slash + 1));
    case Repair::make_reserve:
      context_.store.refill_reserve();
      return;
    case Repair::take_back_store:
      base::check(chown(subject.c_str(), 0, 0), "set the owner of " + subject);
      base::check(chmod(subject.c_str(), 0700), "set the mode of " + subject);
      return;
  }
}

}  // namespace moorage::workspace
