#include "outpost/housekeeping.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <chrono>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/os/files.h"
#include "outpost/connect.h"
#include "outpost/programs.h"
#include "outpost/sandbox.h"
#include "outpost/trees.h"

namespace moorage::outpost {
namespace {

namespace json = boost::json;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr auto kEndPatience = milliseconds(10'000);
constexpr auto kPause = milliseconds(10);

// Its serve may be about to remove it all.
Fd try_lock(const std::string& path) {
  try {
    return lock_serve(path);
  } catch (const Error& error) {
    if (error.code() == Code::not_found) return {};
    throw;
  }
}

// Ends its serve, and keeps another one from starting. Empty: the sandbox is gone.
Fd take_over(const std::string& path) {
  const auto end = Clock::now() + kEndPatience;
  for (;;) {
    if (Fd lock = try_lock(path)) return lock;
    if (!base::path_exists(path)) return {};
    if (const auto serve = read_pid(path + "/serve.pid")) kill(serve->pid, SIGKILL);
    if (Clock::now() > end)
      throw Error(Code::unavailable, "the process that serves " + path + " does not end");
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

std::string list(const Directory& directory) {
  json::array sandboxes;
  for (const std::string& name : directory.sandbox_names()) {
    if (!is_name(name)) continue;
    const Sandbox sandbox(directory, name);
    sandboxes.push_back(json::object{{"name", name},
                                     {"generation", sandbox.generation().value_or(0)},
                                     {"living", sandbox.prepared()},
                                     {"started", sandbox.started()}});
  }
  json::array trees;
  for (const std::string& key : directory.tree_keys()) {
    if (!is_name(key)) continue;
    trees.push_back(json::object{{"key", key},
                                 {"complete", is_complete(directory.tree(key))},
                                 {"bytes", base::tree_usage(directory.tree(key)).bytes}});
  }
  return json::serialize(
      json::object{{"sandboxes", std::move(sandboxes)}, {"trees", std::move(trees)}});
}

void remove_sandbox(const Directory& directory, const std::string& name) {
  for (const std::string& one : {name, name + Sandbox::kTrial}) {
    const Sandbox sandbox(directory, one);
    if (!base::path_exists(sandbox.path())) continue;
    const Fd lock = take_over(sandbox.path());
    if (!lock) continue;
    sandbox.destroy();
    remove_whatever(sandbox.path());
  }
}

void clean(const Directory& directory) {
  std::set<std::string> used;
  bool any = false;
  for (const std::string& name : directory.sandbox_names()) {
    any = true;
    for (const std::string& key : Sandbox(directory, name).used_trees()) used.insert(key);
  }
  for (const std::string& key : directory.tree_keys()) {
    if (!used.contains(key)) remove_whatever(directory.trees() + "/" + key);
  }
  if (any) return;
  for (const std::string& name : base::list_directory(directory.path()))
    remove_whatever(directory.path() + "/" + name);
  rmdir(directory.path().c_str());
}

}  // namespace moorage::outpost
