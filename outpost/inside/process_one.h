// Process 1 of a sandbox here. Made by prepare in all its namespaces, it holds the mounts and waits
// for SIGUSR1; then it becomes moorage-warden, whose listening socket has had its path from the
// start. It does not need `serve`: that one finds it again through its record.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/os/fd.h"
#include "base/os/process.h"
#include "base/os/processors.h"
#include "outpost/inside/root.h"

namespace moorage::outpost {

struct ProcessOne {
  base::ProcessIdentity identity;
  OverlayKind overlay = OverlayKind::root;
  bool started = false;
  std::string tree;  // keys, as prepare got them
  std::string objects;
  std::vector<std::string> limits = {};  // that hold
};

// The record, sandboxes/<name>/init.json; empty: none, or of an earlier boot.
std::optional<ProcessOne> read_record(const std::string& sandbox);
void write_record(const std::string& sandbox, const ProcessOne& one);
std::optional<ProcessOne> living(const std::string& sandbox);

// Kept open across the exec of the warden.
struct Handover {
  Fd listener;
  Fd spool;
  Fd warden;
};

// Makes it and its record. Runs in an operation's child (operation.h), which it outlives.
void make_process_one(const RootPlan& plan, ProcessOne one, const Handover& handover);

// What it does in its own process, for every kind of sandbox.
struct NewProcess {
  Limits limits = {};
  base::Processors processors = {};      // that it keeps to; empty: all
  unsigned long namespaces = 0;          // flags of clone(2)
  std::function<void(pid_t)> made = {};  // here, before it goes on
  std::function<void()> set_up;          // there, still with all descriptors; may throw
  std::function<void()> lock_down;       // there, with those of the handover alone; may throw
  std::function<void()> run;             // there, after SIGUSR1; does not return
};
// For a new sandbox, such that all in the directory of its siblings spread over them.
base::Processors choose_processors(const std::string& sandbox, const Limits& limits);
void make_recorded_process(const std::string& sandbox, ProcessOne one, const Handover& handover,
                           const NewProcess& process);
[[noreturn]] void exec_warden(const Handover& handover, const Limits& limits,
                              const std::vector<std::string>& options);

// A child that shall be alone in its user namespace as inside user 1000. For callers that are not
// root: the owner of such a namespace may do everything to what belongs to it.
void enter_own_user_namespace(uint32_t inside);

// False: it is about to end. A process that was killed gives up its namespaces first, and then
// waits for all others of the sandbox.
bool can_be_entered(const ProcessOne& one);
// For an operation's child. First: who owns the sandbox's files may read all of them, whatever
// their modes; a no-op for root. Then: paths are those of the sandbox, as process 1 sees them.
void enter_owners_namespace(const ProcessOne& one);
void enter_mounts(const ProcessOne& one);

}  // namespace moorage::outpost
