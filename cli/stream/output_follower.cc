#include "cli/stream/output_follower.h"

#include <algorithm>

#include "cli/client/api.h"
#include "cli/client/backoff.h"

namespace moorage::cli {
namespace {

using base::RecordKind;

// The daemon sends keep-alives more often; longer silence means a dead connection.
constexpr int kSilenceMs = 90'000;
constexpr std::chrono::seconds kQuietFor{30};

bool is_output(RecordKind kind) {
  return kind == RecordKind::standard_output || kind == RecordKind::standard_error ||
         kind == RecordKind::terminal;
}

}  // namespace

OutputFollower::OutputFollower(const std::string& socket_path, FollowPlan plan)
    : plan_(std::move(plan)),
      idempotency_key_(new_idempotency_key()),
      connection_(socket_path),
      next_offset_(plan_.offset) {}

void OutputFollower::abandon() {
  abandoned_ = true;
  connection_.cancel();
}

Json OutputFollower::run() {
  if (!plan_.exec.empty() && plan_.on_started) plan_.on_started(plan_.exec);
  Backoff backoff(reconnect_patience());
  for (;;) {
    heard_ = false;
    answered_ = false;
    try {
      if (attempt() == Attempt::ended) return end_;
      if (!plan_.follow) return Json();
    } catch (const Error& error) {
      const bool unreachable = error.code() == Code::unavailable;
      const bool lost = error.code() == Code::unknown_outcome || (unreachable && reached_);
      // An answer is final, except "unavailable" to a reader: a daemon that is shutting down sends
      // it.
      const bool may_pass = answered_ ? unreachable && !plan_.exec.empty() : lost;
      if (abandoned_ || !may_pass) throw;
      reached_ = true;
      if (heard_) backoff.reset();
      if (backoff.waited() > kQuietFor) note_trouble(error);
    }
    if (!backoff.wait()) {
      throw Error(Code::unavailable,
                  "the daemon did not come back" +
                      (plan_.exec.empty() ? "" : "; " + plan_.exec + " may keep running"),
                  plan_.exec.empty() ? "check whether the command started: moorage ps"
                                     : "later: moorage attach " + plan_.exec);
    }
  }
}

void OutputFollower::note_trouble(const Error& error) {
  if (told_trouble_ || !plan_.on_notice) return;
  told_trouble_ = true;
  plan_.on_notice(error.message() +
                  "; still trying; Ctrl-C stops waiting, the command keeps running");
}

HttpRequest OutputFollower::next_request() const {
  HttpRequest request;
  request.headers = {{"Accept", "application/vnd.moorage.output"}};
  if (plan_.exec.empty()) {
    request.method = "POST";
    request.target = plan_.post_target;
    request.body = plan_.post_body;
    request.headers.emplace_back("Content-Type", "application/json");
    request.headers.emplace_back("Idempotency-Key", idempotency_key_);
  } else {
    request.target = "/v1/execs/" + percent_encode(plan_.exec) +
                     "/output?offset=" + std::to_string(next_offset_) +
                     (plan_.follow ? "&follow=1" : "") +
                     (plan_.follow && plan_.late ? "&late=1" : "");
  }
  return request;
}

bool OutputFollower::has_noted(const std::string& text) const {
  return std::any_of(told_notices_.begin(), told_notices_.end(),
                     [&](const std::string& told) { return told.find(text) != told.npos; });
}

void OutputFollower::note_once(const std::string& notice) {
  if (!plan_.on_notice || !told_notices_.insert(notice).second) return;
  plan_.on_notice(notice);
}

OutputFollower::Attempt OutputFollower::attempt() {
  base::RecordParser parser(
      [this](RecordKind kind, std::string_view payload) { take_record(kind, payload); });
  skip_bytes_ = 0;
  ExchangeOptions options;
  options.silence_timeout_ms = kSilenceMs;
  options.on_header = [this](const HttpResponse& response) { take_header(response); };
  options.sink = [&parser](std::string_view bytes) { parser.feed(bytes); };
  const HttpResponse response = connection_.exchange(next_request(), options);
  if (!response.ok()) {
    answered_ = true;
    throw_api_error(response);
  }
  return ended_ ? Attempt::ended : Attempt::dropped;
}

void OutputFollower::take_header(const HttpResponse& response) {
  reached_ = true;
  if (!response.ok() || !plan_.exec.empty()) return;
  plan_.exec = response.header("Moorage-Exec");
  const std::string warning = response.header("Moorage-Warning");
  if (!warning.empty() && plan_.on_notice) plan_.on_notice(warning);
  if (plan_.exec.empty())
    throw Error(Code::corrupted, "the daemon's answer lacks the command's id");
  if (plan_.on_started) plan_.on_started(plan_.exec);
}

void OutputFollower::take_record(RecordKind kind, std::string_view payload) {
  heard_ = true;
  if (is_output(kind)) return take_output(kind, payload);
  if (kind == RecordKind::position) {
    return take_position(Json::parse(payload));
  }
  if (kind == RecordKind::end) {
    end_ = Json::parse(payload);
    ended_ = true;
  }
  if (kind == RecordKind::error) {
    answered_ = true;
    const Json json = Json::parse(payload);
    throw Error(base::code_from_name(json.text("code")), json.text("message"), json.text("hint"));
  }
  if (kind == RecordKind::keep_alive && !payload.empty())
    note_once(Json::parse(payload).text("notice"));
  // limit is reported at the end, with the number of dropped bytes.
}

void OutputFollower::take_position(const Json& json) {
  const auto position = static_cast<uint64_t>(json.number("offset"));
  const std::string late_at = json.text("late_at");
  if (!late_at.empty() && plan_.on_notice)
    plan_.on_notice("written after the command ended, at " + late_at + ":");
  if (position < next_offset_) {
    skip_bytes_ = next_offset_ - position;
    return;
  }
  skip_bytes_ = 0;
  if (position > next_offset_ && plan_.on_notice) {
    const std::string first = json.text("gap.first_at"), last = json.text("gap.last_at");
    plan_.on_notice(std::to_string(position - next_offset_) +
                    " bytes of output were dropped, offsets " + std::to_string(next_offset_) +
                    " to " + std::to_string(position) +
                    (first.empty() ? "" : ", written " + first + " to " + last));
  }
  next_offset_ = position;
}

void OutputFollower::take_output(RecordKind kind, std::string_view payload) {
  const size_t skipped = static_cast<size_t>(std::min<uint64_t>(skip_bytes_, payload.size()));
  skip_bytes_ -= skipped;
  payload.remove_prefix(skipped);
  if (payload.empty()) return;
  next_offset_ += payload.size();
  plan_.on_output(kind, payload);
}

}  // namespace moorage::cli
