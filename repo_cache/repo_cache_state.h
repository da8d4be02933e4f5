// A RepoCache's memory between calls: checks under way, and answers that are valid until a mirror
// changes.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/error.h"
#include "repo_cache/repo_cache.h"

namespace moorage::repo_cache {

// One check of a repository against upstream, shared by all callers that came before it began.
struct SharedCheck {
  bool begun = false;
  bool done = false;
  RefreshResult result;
  std::optional<Error> error;
};

struct RepoCache::State {
  struct Flight {
    bool running = false;
    std::shared_ptr<SharedCheck> next;  // not begun: later callers join it
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, Flight> flights;
  std::map<std::string, std::shared_ptr<const WorkspaceRefs>> workspace_refs;
  // commit, ref, limit -> how far behind: queried for every row of a list.
  using Distances = std::map<std::tuple<std::string, std::string, int>, std::optional<Distance>>;
  std::map<std::string, Distances> distances;
  // commit, since, ref: a sandbox may ask again and again
  std::map<std::string, std::map<std::tuple<std::string, std::string, std::string>, bool>> later;
  std::map<std::string, uint64_t> generations;  // incremented whenever answers expire
  std::map<std::string, int64_t> checked_wall_ms;

  struct Turn {
    std::shared_ptr<SharedCheck> check;
    bool ours = false;  // the caller must run it and then call end(); else it is done
  };
  // Joins the next check of a repository that has not begun.
  Turn await_turn(const std::string& repo, std::chrono::steady_clock::time_point end) {
    std::unique_lock lock(mutex);
    Flight& flight = flights[repo];
    if (!flight.next) flight.next = std::make_shared<SharedCheck>();
    const std::shared_ptr<SharedCheck> check = flight.next;
    const bool in_time = changed.wait_until(
        lock, end, [&] { return check->done || (!flight.running && !check->begun); });
    if (!in_time) {
      throw Error(Code::deadline_exceeded, "another fetch of this repository is still running");
    }
    if (check->done) return {check, false};
    check->begun = flight.running = true;
    flight.next.reset();
    return {check, true};
  }
  void end(const std::string& repo, SharedCheck& check) {
    const std::lock_guard lock(mutex);
    if (check.result.fetched || check.error) forget_locked(repo);
    if (!check.error) checked_wall_ms[repo] = check.result.checked_wall_ms;
    check.done = true;
    flights[repo].running = false;
    changed.notify_all();
  }

  void forget(const std::string& repo) {
    const std::lock_guard lock(mutex);
    forget_locked(repo);
  }
  void drop(const std::string& repo) {  // it is removed
    const std::lock_guard lock(mutex);
    forget_locked(repo);
    checked_wall_ms.erase(repo);
  }
  void forget_locked(const std::string& repo) {
    workspace_refs.erase(repo);
    distances.erase(repo);
    later.erase(repo);
    ++generations[repo];
  }
};

}  // namespace moorage::repo_cache
