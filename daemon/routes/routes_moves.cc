// Moves a workspace to another backend, image or runtime.
#include "daemon/routes/routes.h"

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
  const auto wanted = body_of(request, [](JsonFields& fields) {
    workspace::MoveRequest in = wanted_in(fields);
    in.now = fields.flag("now");
    in.wait = std::chrono::milliseconds(fields.whole("wait_ms", 0, kMaxWaitMs).value_or(0));
    return in;
  });
  return run_counted(Counted::move, api, request, api.moves, &workspace::Moves::move, wanted);
}

Reply check(Api& api, const Request& request) {
  const auto wanted = body_of(request, wanted_in);
  return Reply::json(move_json(api.moves.check(request.caller, request.parameter(0), wanted)));
}

}  // namespace

void add_move_routes(Router& router, Api& api) {
  const RouteTable routes(router, api);
  routes.add("POST /v1/workspaces/{}/move", Right::destroy, move,
             {.lane = Lane::slow, .keep = Keep::joined, .resume = resumed<&Api::moves>});
  routes.add("POST /v1/workspaces/{}/move/check", Right::destroy, check, {.keep = Keep::nothing});
}

}  // namespace moorage::daemon
