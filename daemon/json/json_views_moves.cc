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
  return text_of({{"from", side_object(plan.from)},
                  {"to", side_object(plan.to)},
                  {"running", plan.running},
                  {"execs", ids_of(plan.execs)},
                  {"notices", texts_of(plan.notices)}});
}

}  // namespace moorage::daemon
