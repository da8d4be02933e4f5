#include "daemon/json/json_object.h"
#include "daemon/json/json_views.h"

namespace moorage::daemon {
namespace {

JsonObject side_object(const workspace::MovePlan::Side& side) {
  JsonObject object{{"backend", side.place.backend}, {"image", lossy_utf8(side.place.image)}};
  put_text(object, "runtime", side.place.runtime);
  put_text(object, "isolation", side.isolation);
  return object;
}

}  // namespace

std::string move_json(const workspace::MovePlan& plan) {
  boost::json::array execs;
  for (const auto exec : plan.execs) execs.emplace_back(exec.str());
  boost::json::array notices;
  for (const auto& notice : plan.notices) notices.emplace_back(lossy_utf8(notice));
  return boost::json::serialize(JsonObject{{"from", side_object(plan.from)},
                                           {"to", side_object(plan.to)},
                                           {"running", plan.running},
                                           {"execs", std::move(execs)},
                                           {"notices", std::move(notices)}});
}

}  // namespace moorage::daemon
