// Compares the database with the disk, the host's mounts, the backends and the git objects, and
// trusts none of them. Where the reconciler looks at the same thing, doctor sees it through seen.h,
// too, and reports what the recovery table decides. Each finding is one plain sentence with its
// repair. A finding counts only if it is still there a moment later, so that a running verb does
// not count. `fix` makes the safe repairs, with the same steps as the reconciler; the others are
// left to a person, with a command.
#pragma once

#include <string>
#include <vector>

#include "state_db/recovery_table.h"
#include "workspace/chain/sealing.h"
#include "workspace/recovery/reconcile.h"
#include "workspace/replica/replica.h"
#include "workspace/verbs/files.h"

namespace moorage::workspace {

enum class Severity : uint8_t { note, warning, error };  // a store with only notes is clean
std::string_view severity_name(Severity severity);

// Repairs that fix makes in addition to a pass of the reconciler.
enum class Repair : uint8_t {
  none,
  accept_files,
  clone_again,
  remake_base_tree,
  make_reserve,
  take_back_store,
};

struct Finding {
  std::string check;  // "layers": the check that found it
  Severity severity = Severity::warning;
  std::string subject;    // "ws_3", a path
  std::string text;       // the problem
  std::string mend{};     // the repair that fix makes; empty: needs a person
  std::string command{};  // suggestion for that person
  Repair repair = Repair::none;
  bool repaired = false;
  friend bool operator==(const Finding& a, const Finding& b) {
    return a.check == b.check && a.subject == b.subject && a.text == b.text;
  }
};

struct Diagnosis {
  std::vector<Finding> findings;
  bool clean() const;  // only notes and repaired findings
};

class Doctor {
 public:
  Doctor(Context& context, Repositories& repositories, Sealing& sealing, ExecWatcher& watcher,
         Reconciler& reconciler, const Replica& replica)
      : context_(context),
        repositories_(repositories),
        sealing_(sealing),
        watcher_(watcher),
        reconciler_(reconciler),
        replica_(replica) {}

  // `deep` also checks all git objects, files of base trees and frames of journals: minutes.
  Diagnosis look(bool deep);
  Diagnosis fix(bool deep);

 private:
  using Findings = std::vector<Finding>;
  Findings look_once(bool deep, const std::vector<PlaceAnswer>& answers);
  void database(Findings& found);
  void steps(Findings& found);
  void sandboxes(Findings& found);
  void execs(Findings& found, bool deep);
  void journal(Findings& found, const state_db::ExecRow& exec, const std::string& path,
               bool deep) const;
  bool may_lose_output(const state_db::ExecRow& exec) const;
  void layers(Findings& found);
  void archives(Findings& found, bool deep);
  void journals(Findings& found);
  void integrity(Findings& found);
  void repositories(Findings& found, bool deep);
  void base_trees(Findings& found, const state_db::RepositoryRow& row, bool deep);
  void mounts(Findings& found);
  void store(Findings& found);
  void replica(Findings& found) const;
  void machines(Findings& found, const std::vector<PlaceAnswer>& answers);
  void mend(const Finding& finding);
  // What a pass of the reconciler does with something that has no row.
  static std::string mend_of(state_db::Orphan what);
  bool at_work(const std::string& key);

  Context& context_;
  Repositories& repositories_;
  Sealing& sealing_;
  ExecWatcher& watcher_;
  Reconciler& reconciler_;
  const Replica& replica_;
};

}  // namespace moorage::workspace
