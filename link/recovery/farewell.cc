#include "link/recovery/farewell.h"

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <utility>

#include "base/wire/outpost_requests.h"

namespace moorage::link {
namespace {

namespace json = boost::json;
using std::chrono::milliseconds;

constexpr milliseconds kStopPatience{30'000};
constexpr int64_t kMaxGraceMs = 600'000;

milliseconds grace_in(const json::object& request) {
  const json::value* grace = request.if_contains("grace_ms");
  const int64_t grace_ms = grace && grace->is_int64() ? grace->get_int64() : 0;
  return milliseconds(std::clamp<int64_t>(grace_ms, 0, kMaxGraceMs));
}

std::string outcome(bool kept, const std::string& why) {
  return json::serialize(json::object{{"kept", kept}, {"why", why}});
}

}  // namespace

void Farewell::run(Stream& stream, const json::object& request, Done done) {
  under_way_ = true;
  uplink_.use();
  const milliseconds grace = grace_in(request);
  const json::value* keep = request.if_contains("keep");
  keeps_ = keep && keep->is_bool() && keep->get_bool();
  call_ = Call::start(loop_, stream,
                      {.request = {{"what", base::outpost::kStop}, {"grace_ms", grace.count()}},
                       .deadline = grace + kStopPatience},
                      [this, done = std::move(done)](const json::object&, const Error* error) {
                        call_.reset();
                        error ? fail(*error, done) : last_sync(done);
                      });
}

// All ends of journals wait for a sync that began after them; this one began after all of them.
void Farewell::last_sync(const Done& done) {
  syncs_.request([this, done](const Error* error) { error ? fail(*error, done) : keep(done); });
}

void Farewell::keep(const Done& done) {
  if (!keeps_) return remove("", done);
  if (!uplink_.stream()) return remove("the connection to it was cut", done);
  const auto emptied = [this, done](const json::object&, const Error* error) {
    call_.reset();
    if (error) return remove(error->message(), done);
    uplink_.pause([this, done](const Error* failed) {
      if (failed) return remove(failed->message(), done);
      done(outcome(true, ""), nullptr);
    });
  };
  call_ = Call::start(loop_, *uplink_.stream(), {.request = {{"what", base::outpost::kDestroy}}},
                      emptied);
}

void Farewell::remove(const std::string& why, const Done& done) {
  uplink_.remove([this, why, done](const Error* error) {
    if (!error) return done(outcome(false, why), nullptr);
    fail(*error, done);
    uplink_.ask_for_sign();  // its processes have ended
  });
}

void Farewell::fail(const Error& error, const Done& done) {
  under_way_ = false;
  done({}, &error);
}

}  // namespace moorage::link
