// Moves a workspace to another backend, image or runtime.
#include "daemon/json/json_fields.h"
#include "daemon/routes/routes.h"
#include "workspace/context/metrics.h"

namespace moorage::daemon {
namespace {

constexpr int64_t kMaxWaitMs = 60'000;  // as for an exec: wait longer by repeating the request

workspace::MoveRequest wanted_in(JsonFields& fields) {
  workspace::MoveRequest wanted;
  const auto text = [&fields](const char* name) {
    auto given = fields.text(name);
    if (given && given->empty()) {
      throw base::Error(base::Code::invalid_argument, std::string(name) + " must not be empty",
                        "leave it out for the default");
    }
    return given;
  };
  wanted.backend = text("backend");
  wanted.image = text("image");
  wanted.runtime = text("runtime");
  return wanted;
}

Reply answer(const workspace::WorkspaceView& view) {
  Reply reply = Reply::json(workspace_json(view));
  reply.subject = view.row.id.str();
  return reply;
}

Reply move(Api& api, const Request& request) {
  JsonFields fields = JsonFields::parse(request.body);
  workspace::MoveRequest wanted = wanted_in(fields);
  wanted.now = fields.flag("now");
  wanted.wait = std::chrono::milliseconds(fields.whole("wait_ms", 0, kMaxWaitMs).value_or(0));
  fields.finish();
  return answer(api.context.metrics.counted(workspace::Verb::move, [&] {
    return api.moves.move(request.caller, request.parameter(0), wanted);
  }));
}

Reply check(Api& api, const Request& request) {
  JsonFields fields = JsonFields::parse(request.body);
  const workspace::MoveRequest wanted = wanted_in(fields);
  fields.finish();
  return Reply::json(move_json(api.moves.check(request.caller, request.parameter(0), wanted)));
}

}  // namespace

void add_move_routes(Router& router, Api& api) {
  const auto plain = [&api](Reply (*run)(Api&, const Request&)) {
    return Handler([&api, run](const Request& request) { return run(api, request); });
  };
  router.add({.method = "POST",
              .pattern = "/v1/workspaces/{}/move",
              .access = Right::destroy,
              .handler = plain(move),
              .lane = Lane::slow,
              .keep = Keep::joined,
              .resume = [&api](const Request&, const std::string& joined) {
                return answer(api.moves.resume(joined));
              }});
  router.add({.method = "POST",
              .pattern = "/v1/workspaces/{}/move/check",
              .access = Right::destroy,
              .handler = plain(check),
              .keep = Keep::nothing});
}

}  // namespace moorage::daemon
