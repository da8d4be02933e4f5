// Counters of the verbs and commands of this layer, for GET /metrics.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "base/metrics.h"
#include "state_db/tables/execs.h"
#include "workspace/context/waiters.h"

namespace moorage::workspace {

enum class Verb {
  create,
  start,
  stop,
  remove,
  undelete,
  purge,
  exec,
  fetch,
  update,
  archive,
  unarchive,
  export_,
  import,
  snapshot,
  drop,
  restore,
  fork,
  promote,
  best_of,
  compare,
  move,
  sync
};
inline constexpr std::array<std::string_view, 22> kVerbNames{
    "create", "start",   "stop",      "delete",  "undelete", "purge",    "exec", "fetch",
    "update", "archive", "unarchive", "export",  "import",   "snapshot", "drop", "restore",
    "fork",   "promote", "best-of",   "compare", "move",     "sync"};

// The kinds of things that collection takes, least harm first (workspace/upkeep/gc_plan.h).
enum class GcRung { cache, base_tree, workspace, mirror };
inline constexpr std::array<std::string_view, 4> kGcRungNames{"cache", "base_tree", "workspace",
                                                              "mirror"};

struct VerbMetrics {
  base::Histogram seconds;                 // of successful calls
  std::array<base::Counter, 13> refusals;  // by base::Code
};

struct Metrics {
  std::array<VerbMetrics, kVerbNames.size()> verbs;
  base::Histogram sandbox_start;
  base::Histogram exec_start;  // from its record to the warden's answer
  base::Histogram exec_total{base::kCommandBounds};
  // By state, and by category; the last entry means no category.
  static constexpr size_t kCategories = state_db::kExecCategoryNames.size() + 1;
  std::array<std::array<base::Counter, kCategories>, 7> ended;
  base::Counter output_bytes;
  base::Counter ended_for_space;                             // execs, by the disk guard
  base::Counter ended_for_quota;                             // execs, by the quota watcher
  base::Counter stopped_for_space;                           // sandboxes
  std::array<base::Counter, kGcRungNames.size()> collected;  // rows of gc, by rung
  base::Counter collected_bytes;
  base::Counter network_connected;  // connections of sandboxes, so far
  base::Counter network_bytes_in;   // to sandboxes
  base::Counter network_bytes_out;
  base::Counter network_refused;     // names and connections, by a policy
  base::Counter network_over_limit;  // connections, by a limit

  void count_end(const state_db::ExecRow& row, const state_db::ExecOutcome& outcome) {
    const size_t category =
        outcome.category ? static_cast<size_t>(*outcome.category) : kCategories - 1;
    ended.at(static_cast<size_t>(outcome.state)).at(category).add();
    output_bytes.add(outcome.output_bytes);
    const int64_t took_ms = std::max<int64_t>(0, outcome.ended_wall_ms - row.started_wall_ms);
    exec_total.observe(static_cast<double>(took_ms) / 1000);
  }

  // Runs the verb and counts its outcome.
  template <typename Work>
  auto counted(Verb verb, const Work& work) {
    VerbMetrics& metrics = verbs.at(static_cast<size_t>(verb));
    const auto began = base::Histogram::Clock::now();
    try {
      if constexpr (std::is_void_v<decltype(work())>) {
        work();
        metrics.seconds.observe_since(began);
      } else {
        auto result = work();
        metrics.seconds.observe_since(began);
        return result;
      }
    } catch (const Waiting&) {
      throw;  // the verb is called again, and counted then
    } catch (const base::Error& error) {
      metrics.refusals.at(static_cast<size_t>(error.code())).add();
      throw;
    } catch (const std::exception&) {
      metrics.refusals.at(static_cast<size_t>(base::Code::internal)).add();
      throw;
    }
  }
};

}  // namespace moorage::workspace
