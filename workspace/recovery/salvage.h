// Fetches what a machine that was left still has (workspace/sandbox/given_up.h) into a new
// workspace NAME-recovered: a fork of the state that it is relative to. It is never merged by
// itself. Without changes there is no fork.
//
// The order, each step repeatable: fetch the packs; write the fork's rows, its files, its outcome;
// remove the machine (MachineSweep does); remove the packs. A crash leaves packs, or a fork that
// the reconciler undoes because it is not ready; the next try makes it again from the packs. The
// fork's key keeps it from being made twice. Safe from several threads, for different sandboxes.
#pragma once

#include <chrono>
#include <mutex>

#include "backends/remote/machines.h"
#include "workspace/chain/chains.h"
#include "workspace/sandbox/given_up.h"

namespace moorage::workspace {

class Salvage {
 public:
  Salvage(Context& context, Chains& chains) : context_(context), chains_(chains) {}

  struct Rules {
    bool again = false;  // also what was held for a person
    std::chrono::milliseconds deadline{0};
  };
  // Returns once nothing of this machine is needed. Otherwise throws the reason, and the machine
  // must stay. Blocks for as long as the machine sends.
  void fetch(const std::string& backend, const backends::MachineNote& note, const Rules& rules);
  // After its machine and its note are removed.
  void finish(const std::string& sandbox_name);
  // What a crash left between the two.
  void finish_all();

 private:
  void take_over(const LeftMachine& left, const std::string& directory);
  bool is_done(const LeftMachine& left);
  state_db::NewWorkspace planned_fork(const LeftMachine& left);
  state_db::WorkspaceTable::Created begin_fork(const LeftMachine& left,
                                               base::KeyedMutex::Guard& at_work);
  void write_files(const state_db::WorkspaceRow& fork, const std::string& directory);
  void record(const LeftMachine& left, const state_db::WorkspaceRow& fork);
  void note_trouble(const LeftMachine& left, const std::string& directory, const Error& error);
  void finish(base::SandboxId sandbox);

  Context& context_;
  Chains& chains_;
  std::mutex finishing_;
};

}  // namespace moorage::workspace
