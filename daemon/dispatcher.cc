#include "daemon/dispatcher.h"

#include <chrono>

#include "base/crash_point.h"
#include "base/digest.h"
#include "base/log.h"
#include "daemon/progress_stream.h"

namespace moorage::daemon {
namespace {

using Clock = std::chrono::steady_clock;

MOORAGE_CRASH_POINT(before_kept, "answer.before_kept");
MOORAGE_CRASH_POINT(after_kept, "answer.after_kept");

// `quiet`: a piece of standard input is no event of its own.
void log_answer(const Request& request, const Reply& reply, Clock::time_point began, bool quiet) {
  const bool reads = quiet || request.method == "GET";
  const std::string& subject = reply.subject;
  const std::string_view kind =
      subject.empty() ? "id" : std::string_view(subject).substr(0, subject.find('_'));
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - began);
  base::log(reads ? base::LogLevel::debug : base::LogLevel::info, "http.request",
            {{"method", request.method},
             {"path", request.path},
             {"uid", request.caller.uid},
             {"status", reply.status},
             {"us", took.count()},
             {kind, subject}});
}

// Runs `verb`, turns what it throws into a reply, and tells the log.
template <typename Verb>
Reply guarded(const Request& request, const Verb& verb, bool quiet = false) {
  const auto began = Clock::now();
  Reply reply;
  try {
    reply = verb();
  } catch (...) {
    reply = error_reply(current_error());
  }
  log_answer(request, reply, began, quiet);
  return reply;
}

// Of one that found no kept answer: from what an earlier one left, or by the verb.
template <typename Verb>
Reply run_keyed(KeyedAnswers& answers, const Route& route, const Request& request,
                const Verb& verb) {
  auto& keyed = *request.caller.keyed;
  Reply reply;
  try {
    const bool resumes = route.resume && workspace::has_begun(request.caller);
    reply = resumes ? route.resume(request, keyed.begun) : verb();
  } catch (...) {
    const base::Error error = current_error();
    before_kept.pass();
    answers.keep_refusal(route.keep, keyed, error);
    throw base::Error(error);
  }
  before_kept.pass();
  answers.keep(route.keep, keyed, reply);
  after_kept.pass();
  return reply;
}

// Gives the inner sink what comes. One that is known by its key has none, unless its verb finds out
// itself what is there already: nothing of it appears a second time.
class KeyedSink : public BodySink {
 public:
  KeyedSink(KeyedAnswers& answers, const Route& route, Request request)
      : answers_(answers),
        route_(route),
        request_(std::move(request)),
        claim_(answers.claim(request_)),
        known_(answers.is_known(*request_.caller.keyed)) {
    if (!known_ || !route.resume) inner_ = std::get<UploadHandler>(route.handler)(request_);
  }

  Taken write(std::string_view piece) override {
    const Taken taken = inner_ ? inner_->write(piece) : Taken::all;
    if (taken == Taken::all) hash_.add(piece);
    return taken;
  }
  Reply finish() override {
    return guarded(request_, [&] {
      request_.caller.keyed->set_body_hash(hash_.finish());
      if (auto kept = answers_.find(*request_.caller.keyed)) return std::move(*kept);
      return run_keyed(answers_, route_, request_, [&] {
        if (!inner_) workspace::refuse_unsettled(request_.caller, "its kept answer has expired");
        return inner_->finish();
      });
    });
  }

 private:
  KeyedAnswers& answers_;
  const Route& route_;
  const Request request_;
  const KeyedAnswers::Claim claim_;
  const bool known_;
  std::unique_ptr<BodySink> inner_;
  BodyHash hash_;
};

// What it does is the log line and the error reply.
class PlainSink : public BodySink {
 public:
  PlainSink(Request request, std::unique_ptr<BodySink> inner)
      : request_(std::move(request)), inner_(std::move(inner)) {}
  Taken write(std::string_view piece) override { return inner_->write(piece); }
  Reply finish() override {
    return guarded(
        request_, [&] { return inner_->finish(); }, inner_->patient());
  }
  bool patient() const override { return inner_->patient(); }

 private:
  const Request request_;
  std::unique_ptr<BodySink> inner_;
};

}  // namespace

bool Dispatcher::keeps(const Route& route, const Request& request) const {
  return answers_ != nullptr && route.keep != Keep::nothing && !request.idempotency_key.empty();
}

template <typename Verb>
Reply Dispatcher::run_once(const Route& route, const Request& request, const Verb& verb) {
  if (!keeps(route, request)) return verb(request);
  // Who finds its row by the key may run beside its first, which writes that row.
  std::optional<KeyedAnswers::Claim> claim;
  if (route.keep != Keep::refusal) claim.emplace(answers_->claim(request));
  Request keyed = request;
  keyed.caller.keyed = KeyedAnswers::begin(route, request);
  keyed.caller.keyed->set_body_hash(base::sha256_hex(request.body));
  if (auto kept = answers_->find(*keyed.caller.keyed)) return std::move(*kept);
  return run_keyed(*answers_, route, keyed, [&] { return verb(keyed); });
}

Reply Dispatcher::answer(const Route& route, const Request& request) {
  if (const auto* handler = std::get_if<Handler>(&route.handler)) {
    return guarded(request, [&] { return run_once(route, request, *handler); });
  }
  const auto& handler = std::get<LongHandler>(route.handler);
  // Routes outlive every request; the request is copied, as the verb may outlive its connection.
  const auto run = [this, &route, &handler, request](const workspace::Progress& progress) {
    return guarded(request, [&] {
      return run_once(route, request,
                      [&](const Request& keyed) { return handler(keyed, progress); });
    });
  };
  if (!request.accepts(kLinesType)) return run([](const std::string&, int, const std::string&) {});
  Reply reply;
  reply.content_type = kLinesType;
  reply.source = stream_progress(lanes_, route.lane, run);
  return reply;
}

std::unique_ptr<BodySink> Dispatcher::begin_upload(const Route& route, const Request& request) {
  if (!keeps(route, request)) {
    return std::make_unique<PlainSink>(request, std::get<UploadHandler>(route.handler)(request));
  }
  Request keyed = request;
  keyed.caller.keyed = KeyedAnswers::begin(route, request);
  return std::make_unique<KeyedSink>(*answers_, route, std::move(keyed));
}

}  // namespace moorage::daemon
