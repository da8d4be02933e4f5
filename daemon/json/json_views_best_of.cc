#include <algorithm>

#include "daemon/json/json_object.h"
#include "daemon/json/json_views.h"

namespace moorage::daemon {
namespace {

JsonObject step_object(const state_db::ExecRow& row) {
  JsonObject object{{"exec", row.id.str()}, {"state", state_db::state_name(row.state)}};
  if (row.state == state_db::ExecState::running) return object;
  put_known(object, "exit_code", row.outcome.exit_code);
  put_known(object, "signal", row.outcome.signal);
  if (row.outcome.category) object["category"] = state_db::category_name(*row.outcome.category);
  object["took_ms"] = std::max<int64_t>(0, row.outcome.ended_wall_ms - row.started_wall_ms);
  return object;
}

JsonObject attempt_object(const workspace::AttemptView& view, size_t of) {
  const auto& row = view.row;
  JsonObject object{{"number", row.number}, {"of", of}, {"state", state_db::state_name(row.state)}};
  if (row.workspace) {
    object["workspace"] = row.workspace.str();
    object["name"] = view.fork_name;
    object["kept"] = view.fork_is_there;
  }
  if (!row.patch.label.empty()) put_bytes(object, "patch", row.patch.label);
  put_text(object, "reason", row.reason);
  if (view.each) object["each"] = step_object(*view.each);
  if (view.test) object["test"] = step_object(*view.test);
  if (row.diff) {
    object["diff"] = {{"files", row.diff->files},
                      {"added", row.diff->added},
                      {"removed", row.diff->removed},
                      {"bytes", row.diff->bytes}};
  }
  if (row.has_ended()) object["tail"] = lossy_utf8(row.tail);
  put_time(object, "started_at", row.started_wall_ms);
  put_time(object, "ended_at", row.ended_wall_ms);
  if (row.started_wall_ms > 0 && row.ended_wall_ms > 0)
    object["took_ms"] = std::max<int64_t>(0, row.ended_wall_ms - row.started_wall_ms);
  return object;
}

JsonObject best_of_object(const workspace::BestOfView& view) {
  const auto& row = view.row;
  JsonObject object{{"id", row.id.str()},
                    {"workspace", row.wanted.workspace.str()},
                    {"name", view.workspace_name},
                    {"state", state_db::state_name(row.state)},
                    {"count", view.attempts.size()},
                    {"promote", state_db::promote_name(row.wanted.promote)},
                    {"parallel", row.wanted.parallel},
                    {"keep", row.wanted.keep},
                    {"cancel_requested", row.cancel_requested}};
  if (!row.wanted.each.empty()) put_byte_list(object, "each", row.wanted.each);
  put_byte_list(object, "test", row.wanted.test);
  if (row.wanted.timeout_ms > 0) object["timeout_ms"] = row.wanted.timeout_ms;
  put_text(object, "reason", row.reason);
  if (row.chosen > 0) object["chosen"] = row.chosen;
  if (row.promotion != state_db::Promotion::none)
    object["promotion"] = state_db::promotion_name(row.promotion);
  put_text(object, "promotion_note", row.promotion_note);
  object["attempts"] = array_of(view.attempts, [&](const auto& attempt) {
    return attempt_object(attempt, view.attempts.size());
  });
  put_time(object, "created_at", row.created_wall_ms);
  put_time(object, "ended_at", row.ended_wall_ms);
  return object;
}

JsonObject side_object(const workspace::ComparisonView::Side& side) {
  JsonObject object{
      {"id", side.row.id.str()}, {"name", side.row.name}, {"base", state_db::began_at(side.row)}};
  if (side.row.attempts > 0)
    object["attempt"] = {{"number", side.row.attempt}, {"of", side.row.attempts}};
  if (side.last) {
    object["last"] = step_object(*side.last);
    put_byte_list(object["last"].as_object(), "argv", side.last->request.argv);
  }
  return object;
}

}  // namespace

std::string best_of_json(const workspace::BestOfView& view) {
  return text_of(best_of_object(view));
}

std::string best_ofs_json(const std::vector<workspace::BestOfView>& views) {
  return text_of({{"best_of", array_of(views, best_of_object)}});
}

std::string comparison_json(const workspace::ComparisonView& view) {
  boost::json::array files;
  uint64_t added = 0;
  uint64_t removed = 0;
  for (const auto& file : view.files) {
    JsonObject object;
    put_bytes(object, "path", file.path);
    object["change"] = file.change;
    object["added"] = file.added;
    object["removed"] = file.removed;
    object["binary"] = file.binary;
    object["bytes_from"] = file.bytes_before;
    object["bytes_to"] = file.bytes_after;
    if (!file.left_out.empty()) object["left_out"] = file.left_out;
    added += file.added;
    removed += file.removed;
    files.push_back(std::move(object));
  }
  JsonObject total{{"files", view.files.size()}, {"added", added}, {"removed", removed}};
  return text_of({{"from", side_object(view.from)},
                  {"to", side_object(view.to)},
                  {"total", std::move(total)},
                  {"files", std::move(files)}});
}

}  // namespace moorage::daemon
