#include "daemon/http/dispatcher.h"

#include <chrono>
#include <mutex>

#include "base/crash_point.h"
#include "base/digest.h"
#include "base/log.h"

namespace moorage::daemon {
namespace {

using Clock = std::chrono::steady_clock;

MOORAGE_CRASH_POINT(before_kept, "answer.before_kept");
MOORAGE_CRASH_POINT(after_kept, "answer.after_kept");

// `quiet`: logs a piece of standard input at debug level, like a read.
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

// Runs `verb`, turns an error into a reply, and writes the log line.
template <typename Verb>
Reply guarded(const Request& request, const Verb& verb, bool quiet = false) {
  const auto began = Clock::now();
  Reply reply;
  try {
    reply = verb();
  } catch (const workspace::Waiting&) {
    throw;
  } catch (...) {
    reply = error_reply(current_error());
  }
  log_answer(request, reply, began, quiet);
  return reply;
}

bool keeps(const KeyedAnswers* answers, const Route& route, const Request& request) {
  return answers != nullptr && route.keep != Keep::nothing && !request.idempotency_key.empty();
}

// For a request without a kept answer: resumes an earlier attempt, or runs the verb.
template <typename Verb>
Reply run_keyed(KeyedAnswers& answers, const Route& route, const Request& request,
                const Verb& verb) {
  auto& keyed = *request.caller.keyed;
  Reply reply;
  try {
    const bool resumes = route.resume && workspace::has_begun(request.caller);
    reply = resumes ? route.resume(request, keyed.begun) : verb();
  } catch (const workspace::Waiting&) {
    throw;  // no answer yet
  } catch (...) {
    const base::Error error = current_error();
    before_kept.pass();
    answers.keep_refusal(route.keep, keyed, error);
    keyed.until_answered.reset();
    throw base::Error(error);
  }
  before_kept.pass();
  answers.keep(route.keep, keyed, reply);
  keyed.until_answered.reset();
  after_kept.pass();
  return reply;
}

// Forwards pieces to the inner sink. A known key has no inner sink, so that nothing is written
// twice, unless the verb itself detects what already exists.
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
      // Skip this for an unknown key: a kept record would be this request's own.
      if (known_) {
        if (auto kept = answers_.find(*request_.caller.keyed)) return std::move(*kept);
      }
      return run_keyed(answers_, route_, request_, [&] {
        if (!inner_) workspace::refuse_unsettled(request_.caller, "its saved answer has expired");
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

// Adds the log line and the error reply.
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

// The answer of a verb that waits without a thread (workspace/context/waiters.h): the connection
// sleeps until it exists. The verb continues if the client leaves.
struct LateAnswer {
  std::mutex mutex;
  std::shared_ptr<Reply> reply;
  std::function<void()> wake;

  void finish(Reply made) {  // once, from any thread
    const std::lock_guard lock(mutex);
    reply = std::make_shared<Reply>(std::move(made));
    if (wake) wake();
  }
};

class LateSource : public BodySource {
 public:
  explicit LateSource(std::shared_ptr<LateAnswer> answer) : answer_(std::move(answer)) {}
  void start(std::function<void()> wake) override {
    const std::lock_guard lock(answer_->mutex);
    answer_->wake = std::move(wake);
  }
  Step read() override {
    const std::lock_guard lock(answer_->mutex);
    Step step;
    step.next = answer_->reply ? Next::end : Next::wait;
    step.instead = answer_->reply;
    return step;
  }
  // The wait may outlast a stopping daemon: the client reconnects to the next one.
  bool endless() const override { return true; }

 private:
  std::shared_ptr<LateAnswer> answer_;
};

}  // namespace

// One request's verb, called again after each wait. It holds the claim on its key throughout, so
// another request with that key sees it as in progress.
class Dispatcher::Call {
 public:
  // Routes outlive every request. The request is copied: the verb may outlive its connection.
  Call(const Route& route, const Request& request, KeyedAnswers* answers)
      : route_(route), request_(request), answers_(answers) {}

  const Route& route() const { return route_; }
  base::Share share() const { return request_.share(); }
  Reply run(const workspace::Progress& progress) {
    Reply reply = guarded(request_, [&] { return run_once(progress); });
    claim_.reset();  // before the answer goes out, so that an immediate repeat gets the same
    return reply;
  }

 private:
  Reply run_once(const workspace::Progress& progress) {
    if (!keeps(answers_, route_, request_)) return run_verb(request_, progress);
    // A verb that finds its row by the key may run beside the first request, which writes that row.
    if (route_.keep != Keep::refusal && !claim_) claim_.emplace(answers_->claim(request_));
    Request keyed = request_;
    keyed.caller.keyed = KeyedAnswers::begin(route_, request_);
    keyed.caller.keyed->set_body_hash(base::sha256_hex(request_.body));
    if (auto kept = answers_->find(*keyed.caller.keyed)) return std::move(*kept);
    return run_keyed(*answers_, route_, keyed, [&] { return run_verb(keyed, progress); });
  }
  Reply run_verb(const Request& request, const workspace::Progress& progress) {
    if (const auto* handler = std::get_if<Handler>(&route_.handler)) return (*handler)(request);
    return std::get<LongHandler>(route_.handler)(request, progress);
  }

  const Route& route_;
  const Request request_;
  KeyedAnswers* answers_;
  std::optional<KeyedAnswers::Claim> claim_;
};

Reply Dispatcher::answer(const Route& route, const Request& request) {
  const auto call = std::make_shared<Call>(route, request, answers_);
  if (std::holds_alternative<LongHandler>(route.handler) && request.accepts(kLinesType)) {
    auto lines = stream_progress(
        [this, call](const auto& progress, const Done& done) { begin(call, progress, done); });
    return Reply::stream(std::move(lines), kLinesType);
  }
  const workspace::Progress untold = [](const std::string&, int, const std::string&) {};
  try {
    return call->run(untold);
  } catch (const workspace::Waiting& waiting) {
    const auto late = std::make_shared<LateAnswer>();
    wait(waiting, call, untold, [late](Reply answer) { late->finish(std::move(answer)); });
    return Reply::stream(std::make_unique<LateSource>(late), kJsonType);
  }
}

void Dispatcher::begin(const CallPtr& call, const workspace::Progress& progress, const Done& done) {
  worker_pools_.submit(call->route().lane, call->share(),
                       [this, call, progress, done] { run(call, progress, done); });
}

void Dispatcher::run(const CallPtr& call, const workspace::Progress& progress, const Done& done) {
  try {
    done(call->run(progress));
  } catch (const workspace::Waiting& waiting) {
    wait(waiting, call, progress, done);
  }
}

void Dispatcher::wait(const workspace::Waiting& waiting, const CallPtr& call,
                      const workspace::Progress& progress, const Done& done) {
  if (waiters_ == nullptr) return done(error_reply(Error(Code::unavailable, waiting.what())));
  waiters_->resume_later(waiting, [this, call, progress, done] { begin(call, progress, done); });
}

std::unique_ptr<BodySink> Dispatcher::begin_upload(const Route& route, const Request& request) {
  if (!keeps(answers_, route, request)) {
    return std::make_unique<PlainSink>(request, std::get<UploadHandler>(route.handler)(request));
  }
  Request keyed = request;
  keyed.caller.keyed = KeyedAnswers::begin(route, request);
  return std::make_unique<KeyedSink>(*answers_, route, std::move(keyed));
}

}  // namespace moorage::daemon
