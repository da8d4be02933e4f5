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

JsonObject exec_object(const workspace::ExecView& view, std::optional<uint64_t> accepted) {
  const auto& row = view.row;
  JsonObject object{{"id", row.id.str()},
                    {"workspace", row.request.workspace.str()},
                    {"sandbox", row.request.sandbox.str()},
                    {"state", state_db::state_name(row.state)},
                    {"owner", row.request.owner_uid},
                    {"user", row.request.user},
                    {"tty", row.request.terminal},
                    {"stdin", row.request.input},
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
  put_known(object, "changed_files", row.changed_files);
  put_known(object, "late_bytes", view.late_bytes);
  put_text(object, "imported_from", row.imported_from);
  put_outcome(object, row);
  return object;
}

}  // namespace

std::string exec_json(const workspace::ExecView& view, std::optional<uint64_t> accepted) {
  return boost::json::serialize(exec_object(view, accepted));
}

std::string execs_json(const std::vector<workspace::ExecView>& views) {
  boost::json::array list;
  for (const auto& view : views) list.push_back(exec_object(view, {}));
  return boost::json::serialize(list);
}

std::string history_json(const workspace::Execs::History& history) {
  const auto& row = history.workspace;
  JsonObject about{
      {"id", row.id.str()}, {"name", row.name}, {"state", state_db::state_name(row.state)}};
  boost::json::array list;
  for (const auto& view : history.execs) list.push_back(exec_object(view, {}));
  return boost::json::serialize(JsonObject{{"workspace", std::move(about)},
                                           {"execs", std::move(list)},
                                           {"truncated", history.truncated}});
}

std::string accepted_json(uint64_t bytes) {
  return boost::json::serialize(JsonObject{{"accepted", bytes}});
}

std::string offset_json(uint64_t offset) {
  return boost::json::serialize(JsonObject{{"offset", offset}});
}

std::string gap_json(uint64_t offset, const base::Gap& gap) {
  constexpr int64_t kNsPerMs = 1'000'000;
  JsonObject about{{"bytes", gap.dropped_bytes}};
  put_time(about, "first_at", gap.first_ns / kNsPerMs);
  put_time(about, "last_at", gap.last_ns / kNsPerMs);
  return boost::json::serialize(JsonObject{{"offset", offset}, {"gap", std::move(about)}});
}

std::string late_json(uint64_t offset, int64_t wall_ms) {
  JsonObject object{{"offset", offset}};
  put_time(object, "late_at", wall_ms);
  return boost::json::serialize(object);
}

std::string notice_json(const std::string& text) {
  return boost::json::serialize(JsonObject{{"notice", text}});
}

}  // namespace moorage::daemon
