// Moves a workspace to another backend, image or runtime.
#include "daemon/json/json_fields.h"
#include "daemon/routes/routes.h"
#include "workspace/context/metrics.h"

namespace moorage::daemon {
namespace {

constexpr int64_t kMaxWaitMs = 60'000;  // as for an exec: wait longer by repeating the request

workspace::MoveRequest wanted_in(JsonFields& fields) {
  workspace::MoveRequest wanted;
  wanted.backend = fields.given_text("backend");
  wanted.image = fields.given_text("image");
  wanted.runtime = fields.given_text("runtime");
  return wanted;
}

Reply move(Api& api, const Request& request) {
  JsonFields fields = JsonFields::parse(request.body);
  workspace::MoveRequest wanted = wanted_in(fields);
  wanted.now = fields.flag("now");
  wanted.wait = std::chrono::milliseconds(fields.whole("wait_ms", 0, kMaxWaitMs).value_or(0));
  fields.finish();
  return workspace_reply(api.context.metrics.counted(workspace::Verb::move, [&] {
    return api.moves.move(request.caller, request.parameter(0), wanted);
  }));
}

Reply check(Api& api, const Request& request) {
  JsonFields fields = JsonFields::parse(request.body);
  const workspace::MoveRequest wanted = wanted_in(fields);
  fields.finish();
  return Reply::json(move_json(api.moves.check(request.caller, request.parameter(0), wanted)));
}

Reply resume_move(Api& api, const Request&, const std::string& joined) {
  return workspace_reply(api.moves.resume(joined));
}

}  // namespace

void add_move_routes(Router& router, Api& api) {
  const RouteTable routes(router, api);
  routes.add("POST /v1/workspaces/{}/move", Right::destroy, move,
             {.lane = Lane::slow, .keep = Keep::joined, .resume = resume_move});
  routes.add("POST /v1/workspaces/{}/move/check", Right::destroy, check, {.keep = Keep::nothing});
}

}  // namespace moorage::daemon
