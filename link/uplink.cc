#include "link/uplink.h"

#include <algorithm>
#include <boost/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/wire/outpost_requests.h"
#include "base/wire/protocol.h"
#include "link/recovery/greeting.h"

namespace moorage::link {
namespace {

namespace json = boost::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kFirstPause{100};
constexpr milliseconds kLongestPause{30'000};
// Of an idle machine. While its provider pauses it, it is still listed as running, and to reach it
// would resume it.
constexpr milliseconds kIdlePause{10'000};
constexpr seconds kLeaveDeadline{60};
constexpr seconds kLetOutDeadline{60};
constexpr seconds kExtendDeadline{60};
constexpr milliseconds kLifeCheck{5'000};
constexpr int64_t kSilentMs = 20'000;  // then we ask for a sign of life
constexpr int64_t kDeadMs = 50'000;
constexpr milliseconds kHelloDeadline{30'000};
constexpr milliseconds kCompareDeadline{600'000};  // a walk over the whole tree

Deadline deadline_in(seconds time) { return std::chrono::steady_clock::now() + time; }

}  // namespace

json::object Uplink::hello_request() const {
  json::object request{{"what", base::outpost::kHello},
                       {"protocol", json::object{{"oldest", base::kProtocols.oldest},
                                                 {"newest", base::kProtocols.newest}}},
                       {"generation", config_.generation}};
  if (!up_ && resumed_) {
    request["resumed"] = true;
    request["acknowledged"] = host_.acknowledged();
  }
  return request;
}

Uplink::Uplink(base::Loop& loop, UplinkHost& host, const base::LinkConfig& config, KeyReader key)
    : loop_(loop),
      host_(host),
      config_(config),
      machine_(std::make_shared<RemoteMachine>(config, std::move(key))),
      errands_(loop),
      again_(loop),
      life_(loop),
      extend_(loop) {}

void Uplink::connect() {
  if (up_ || busy_) return;
  again_.stop();
  begin_errand(false);
}

void Uplink::use() {
  if (!up_ || stream_->broken()) {
    wanted_ = true;
    if (keep_trying_) connect();
    return;
  }
  if (ends_by_itself() &&
      base::monotonic_ms() - extended_ms_ >= milliseconds(extend_every_).count())
    extend();
}

void Uplink::stop_trying() {
  keep_trying_ = false;
  again_.stop();
}

void Uplink::begin_errand(bool put_programs) {
  busy_ = true;
  const Deadline deadline = deadline_in(seconds(config_.start_deadline_s));
  // A pause may have damaged those of a machine that another sandbox had.
  put_programs = put_programs || (!config_.machine.empty() && host_.may_create());
  const RemoteMachine::Way way{put_programs, host_.may_create(), wanted_ || host_.needed()};
  errands_.post([this, way, deadline, machine = machine_]() -> Errands::Then {
    // Shared, because std::function copies what it holds.
    auto run = std::make_shared<std::unique_ptr<Run>>();
    try {
      *run = machine->connect(way, deadline);
    } catch (const Error& error) {
      return [this, error, asleep = machine->is_asleep()] {
        // It became wanted while we looked for it.
        if (asleep && wanted_) return begin_errand(false);
        asleep_ = asleep;
        down(error);
      };
    } catch (const std::exception& error) {
      return [this, text = std::string(error.what())] { down(Error(Code::internal, text)); };
    }
    return [this, run, put_programs = way.put_programs, resumed = machine->take_resumed()] {
      resumed_ = resumed_ || resumed;
      take_run(std::move(*run), put_programs);
    };
  });
}

void Uplink::take_run(std::unique_ptr<Run> run, bool put_programs) {
  did_put_ = put_programs;
  refused_ = false;
  stream_ = std::make_unique<Stream>(loop_, std::move(run), [this](const Error& reason) {
    // A machine that does not have our programs yet.
    if (!up_ && !did_put_ && reason.code() == Code::not_found) {
      hello_.reset();
      stream_.reset();
      return begin_errand(true);
    }
    // A call of the stream found nothing. Whether the machine is gone shows the next look for it.
    const bool missing = reason.code() == Code::not_found && !host_.may_create() && !refused_;
    down(missing ? Error(Code::unavailable, reason.message(), reason.hint()) : reason);
  });
  greet();
}

void Uplink::greet() {
  hello_ = Call::start(
      loop_, *stream_,
      {.request = hello_request(), .deadline = resumed_ ? kCompareDeadline : kHelloDeadline},
      [this](const json::object& answer, const Error* error) { greeted(answer, error); });
}

void Uplink::greeted(const json::object& answer, const Error* error) {
  if (error) {
    const Error reason = *error;
    refused_ = !stream_->broken();
    return stream_->give_up(reason);  // nothing, if its end is the reason
  }
  if (up_) return host_.on_sign(answer);
  opened_ = !says(answer, "net_namespace") && !config_.provider_rules.hosts.empty();
  const bool carried = says(answer, "net_namespace") || says(answer, "started");
  if (config_.machine_is_ours && !carried) return let_out(answer);
  reached(answer);
}

// Nothing runs there yet. The provider opens the machine as far as the rules say, in place of a
// network of the sandbox.
void Uplink::let_out(const json::object& greeting) {
  const auto told = [this, greeting, stream = streams_](const std::optional<Error>& error) {
    if (stream != streams_) return;  // it has ended meanwhile
    error ? stream_->give_up(*error) : reached(greeting);
  };
  errands_.post([told, machine = machine_]() -> Errands::Then {
    try {
      machine->let_out(deadline_in(kLetOutDeadline));
    } catch (const Error& error) {
      return [told, error] { told(error); };
    }
    return [told] { told({}); };
  });
}

void Uplink::reached(const json::object& greeting) {
  busy_ = false;
  up_ = true;
  resumed_ = false;
  asleep_ = false;
  reason_.reset();
  pause_ = kFirstPause;
  life_.start(kLifeCheck, [this] { check_life(); });
  extend_every_ = machine_->extend_every();
  keep_alive();
  host_.on_up(greeting);
}

void Uplink::down(const Error& reason) {
  ++streams_;
  busy_ = false;
  const bool was_up = std::exchange(up_, false);
  reason_ = reason;
  life_.stop();
  extend_.stop();
  hello_.reset();
  host_.on_down(reason);
  stream_.reset();
  if (!keep_trying_) return;
  if (was_up && ends_by_itself() && !wanted_ && !host_.needed()) pause_ = kIdlePause;
  again_.start(pause_, [this] { connect(); });
  pause_ = std::min(pause_ * 2, kLongestPause);
}

void Uplink::ask_for_sign() {
  if (up_ && !stream_->broken()) greet();
}

void Uplink::check_life() {
  life_.start(kLifeCheck, [this] { check_life(); });
  const int64_t silent_ms = base::monotonic_ms() - stream_->received_ms();
  if (silent_ms >= kDeadMs) {
    return stream_->give_up(Error(Code::unavailable, "the other machine has not been heard for " +
                                                         std::to_string(silent_ms / 1000) + " s"));
  }
  if (silent_ms >= kSilentMs) greet();
}

void Uplink::keep_alive() {
  const bool wanted = std::exchange(wanted_, false);
  if (!ends_by_itself()) return;
  extend_.start(extend_every_, [this] { keep_alive(); });
  if (wanted || host_.needed()) extend();
}

void Uplink::extend() {
  extended_ms_ = base::monotonic_ms();
  const int64_t until_ms = extended_ms_ + milliseconds(RemoteMachine::kLife).count();
  errands_.post([this, until_ms, machine = machine_]() -> Errands::Then {
    try {
      machine->extend(deadline_in(kExtendDeadline));
      return [this, until_ms] { kept_until_ms_ = until_ms; };
    } catch (const Error& error) {
      return [this, error, resumed = machine->take_resumed()] { not_extended(error, resumed); };
    } catch (const std::exception&) {
      // As there.
    }
    return [] {};
  });
}

uint64_t Uplink::kept_ms() const {
  return static_cast<uint64_t>(std::max<int64_t>(0, kept_until_ms_ - base::monotonic_ms()));
}

// It comes again; if the machine ends, the stream tells. After a pause nothing runs there before a
// greeting, with its comparison.
void Uplink::not_extended(const Error& error, bool resumed) {
  resumed_ = resumed_ || resumed;
  if (resumed && up_) stream_->give_up(error);
}

void Uplink::leave(Leaving way, Done done) {
  const bool tries = keep_trying_;
  stop_trying();
  errands_.post([this, tries, way, done = std::move(done), machine = machine_]() -> Errands::Then {
    try {
      ((*machine).*way)(deadline_in(kLeaveDeadline));
    } catch (const Error& error) {
      return [this, tries, done, error] {
        keep_trying_ = tries;
        done(&error);
      };
    }
    return [done] { done(nullptr); };
  });
}

void Uplink::remove(Done done) {
  leave(&RemoteMachine::remove, [this, done = std::move(done)](const Error* error) {
    if (error && keep_trying_) connect();
    done(error);
  });
}

void Uplink::pause(const Done& done) {
  if (opened_) {
    const Error error(
        Code::unsupported,
        "its provider lets it reach hosts, and the next sandbox may have other rules");
    return done(&error);
  }
  leave(&RemoteMachine::pause, done);
}

}  // namespace moorage::link
