#include <sys/sysinfo.h>

#include <algorithm>

#include "daemon/json/json_object.h"

namespace moorage::daemon {
namespace {

void put_outcome(JsonObject& object, const state_db::ExecRow& row) {
  if (row.state == state_db::ExecState::running) return;
  const auto& outcome = row.outcome;
  put_known(object, "exit_code", outcome.exit_code);
  put_known(object, "signal", outcome.signal);
  if (outcome.category) object["category"] = state_db::category_name(*outcome.category);
  put_text(object, "error", outcome.error);
  put_time(object, "ended_at", outcome.ended_wall_ms);
  object["user_ms"] = outcome.user_ms;
  object["system_ms"] = outcome.system_ms;
  object["max_rss_bytes"] = outcome.max_rss_bytes;
}

JsonObject exec_object(const workspace::ExecView& view, std::optional<uint64_t> accepted = {}) {
  const auto& row = view.row;
  JsonObject object{{"id", row.id.str()},
                    {"workspace", row.request.workspace.str()},
                    {"sandbox", row.request.sandbox.str()},
                    {"state", state_db::state_name(row.state)},
                    {"owner", row.request.owner_uid},
                    {"owner_name", workspace::user_name(row.request.owner_uid)},
                    {"user", row.request.user},
                    {"tty", row.request.terminal},
                    {"stdin", row.request.input},
                    {"merge_output", row.request.merged},
                    {"output_bytes", view.output_bytes},
                    {"omitted_bytes", row.outcome.omitted_bytes},
                    {"cancel_requested", row.cancel_requested}};
  put_byte_list(object, "argv", row.request.argv);
  put_bytes(object, "cwd", row.request.directory);
  put_time(object, "started_at", row.started_wall_ms);
  put_time(object, "last_output_at", view.last_output_ms);
  if (row.request.timeout_ms > 0) object["timeout_ms"] = row.request.timeout_ms;
  if (row.request.idempotency_key)
    put_text(object, "idempotency_key", *row.request.idempotency_key);
  put_text(object, "hook", row.request.hook);
  put_known(object, "stdin_accepted", accepted);
  put_known(object, "stdin_read", row.outcome.input_read);
  put_known(object, "changed_files", row.changed_files);
  put_known(object, "late_bytes", view.late_bytes);
  put_text(object, "imported_from", row.imported_from);
  put_outcome(object, row);
  return object;
}

boost::json::array listed(const std::vector<workspace::ExecView>& views) {
  return array_of(views, [](const auto& view) { return exec_object(view); });
}

JsonObject line_object(const workspace::TopLine& line) {
  const auto& row = line.row;
  JsonObject object{{"id", row.id.str()},
                    {"name", row.name},
                    {"owner", row.owner_uid},
                    {"owner_name", workspace::user_name(row.owner_uid)},
                    {"state", state_db::state_name(row.state)},
                    {"limits",
                     {{"memory_bytes", row.policy.limits.memory_bytes},
                      {"cpus", row.policy.limits.cpus},
                      {"pids", row.policy.limits.pids}}},
                    {"execs_running", line.execs.size()}};
  put_known(object, "disk_bytes", row.disk_bytes);
  put_time(object, "last_output_at", line.last_output_ms);
  if (line.sandbox) {
    JsonObject sandbox{{"id", line.sandbox->id.str()},
                       {"state", state_db::state_name(line.sandbox->state)}};
    if (line.status.state != backends::SandboxState::absent) {
      sandbox["memory_bytes"] = line.status.memory_bytes;
      sandbox["cpu_us"] = line.status.cpu_usec;
      sandbox["processes"] = line.status.processes;
    }
    object["sandbox"] = std::move(sandbox);
  }
  if (!line.execs.empty()) {
    object["doing"] = doing_object(line.execs.back());
  }
  if (line.blocked) object["blocked"] = blocked_object(*line.blocked);
  if (line.network) object["network"] = use_object(*line.network);
  boost::json::array waiting;
  for (const auto& exec : line.execs) {
    if (std::find(line.waiting.begin(), line.waiting.end(), exec.id) == line.waiting.end())
      continue;
    JsonObject one{{"exec", exec.id.str()}};
    put_byte_list(one, "argv", exec.request.argv);
    waiting.push_back(std::move(one));
  }
  object["waiting"] = std::move(waiting);
  return object;
}

}  // namespace

JsonObject doing_object(const state_db::ExecRow& exec) {
  JsonObject doing{{"exec", exec.id.str()}};
  put_byte_list(doing, "argv", exec.request.argv);
  put_time(doing, "since_at", exec.started_wall_ms);
  return doing;
}

JsonObject blocked_object(const workspace::Blocked& blocked) {
  return {{"host", blocked.host}, {"exec", blocked.exec.str()}};
}

JsonObject use_object(const base::NetworkUse& use) {
  return {{"connections", use.connections}, {"connected", use.connected}, {"names", use.names},
          {"bytes_in", use.bytes_in},       {"bytes_out", use.bytes_out}, {"refused", use.refused},
          {"over_limit", use.over_limit}};
}

std::string exec_json(const workspace::ExecView& view, std::optional<uint64_t> accepted) {
  return text_of(exec_object(view, accepted));
}

std::string execs_json(const std::vector<workspace::ExecView>& views) {
  return boost::json::serialize(listed(views));
}

std::string history_json(const workspace::Execs::History& history) {
  const auto& row = history.workspace;
  JsonObject about{
      {"id", row.id.str()}, {"name", row.name}, {"state", state_db::state_name(row.state)}};
  return text_of({{"workspace", std::move(about)},
                  {"execs", listed(history.execs)},
                  {"truncated", history.truncated},
                  {"total", history.total}});
}

std::string top_json(const workspace::TopView& view, const StoreSpace& space) {
  return text_of({{"at", base::format_utc(view.wall_ms)},
                  {"boot_us", view.boot_us},
                  {"cpus", get_nprocs()},
                  {"space", free_object(space)},
                  {"workspaces", array_of(view.lines, line_object)}});
}

std::string offset_json(uint64_t offset) { return text_of({{"offset", offset}}); }

std::string gap_json(uint64_t offset, const base::Gap& gap) {
  constexpr int64_t kNsPerMs = 1'000'000;
  JsonObject about{{"bytes", gap.dropped_bytes}};
  put_time(about, "first_at", gap.first_ns / kNsPerMs);
  put_time(about, "last_at", gap.last_ns / kNsPerMs);
  return text_of({{"offset", offset}, {"gap", std::move(about)}});
}

std::string late_json(uint64_t offset, int64_t wall_ms) {
  JsonObject object{{"offset", offset}};
  put_time(object, "late_at", wall_ms);
  return text_of(object);
}

std::string notice_json(const std::string& text) { return text_of({{"notice", text}}); }

}  // namespace moorage::daemon
