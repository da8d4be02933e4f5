#include "daemon/http/dispatcher.h"

#include <boost/json.hpp>
#include <chrono>
#include <mutex>

#include "base/crash_point.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/utf8.h"

namespace moorage::daemon {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kBetweenLines{100};
constexpr size_t kMaxNoticeBytes = 2000;

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

std::string progress_line(const std::string& phase, int percent, const std::string& text) {
  const boost::json::object object{
      {"progress", {{"phase", phase}, {"percent", percent}, {"text", base::lossy_utf8(text)}}}};
  return boost::json::serialize(object) + "\n";
}

std::string last_line(const Reply& reply) {
  const std::string body = reply.body.empty() ? "{}" : reply.body;
  return (reply.status < 400 ? "{\"result\":" : "{\"error\":") + body + "}\n";
}

// The answer of a verb that runs beside its connection, shared by both, whichever lives longer: the
// verb continues if the client leaves. With `lines` it is the last line after those of the
// progress, at most ten a second. Holds only the newest progress, so a verb that reports a million
// files costs one line. Without `lines` the connection sleeps until the answer exists.
class LateAnswer {
 public:
  explicit LateAnswer(bool lines) : lines_(lines) {}

  bool lines() const { return lines_; }
  void post(std::string line) {
    const std::lock_guard lock(mutex_);
    newest_ = std::move(line);
    if (wake_) wake_();
  }
  void finish(Reply reply) {  // once, from any thread
    const std::lock_guard lock(mutex_);
    reply_ = std::make_shared<Reply>(std::move(reply));
    if (wake_) wake_();
  }
  void set_wake(std::function<void()> wake) {
    const std::lock_guard lock(mutex_);
    wake_ = std::move(wake);
  }
  BodySource::Step read() {
    using Next = BodySource::Next;
    const std::lock_guard lock(mutex_);
    if (reply_ && !lines_) return {{}, Next::end, {}, reply_};
    if (reply_) return {std::exchange(newest_, {}) + last_line(*reply_), Next::end, {}};
    if (newest_.empty()) return {{}, Next::wait, {}};
    const auto now = Clock::now();
    const auto due = shown_at_ + kBetweenLines;
    if (now < due) return {{}, Next::wait, std::chrono::ceil<milliseconds>(due - now)};
    shown_at_ = now;
    return {std::exchange(newest_, {}), Next::more, {}};
  }

 private:
  const bool lines_;
  std::mutex mutex_;
  std::string newest_;
  std::shared_ptr<Reply> reply_;
  Clock::time_point shown_at_;
  std::function<void()> wake_;
};

class LateSource : public BodySource {
 public:
  // `begin` is called once the reply is being written; it must not block.
  explicit LateSource(std::shared_ptr<LateAnswer> answer, std::function<void()> begin = {})
      : answer_(std::move(answer)), begin_(std::move(begin)) {}

  void start(std::function<void()> wake) override {
    answer_->set_wake(std::move(wake));
    if (begin_) begin_();
  }
  Step read() override { return answer_->read(); }
  // The wait may outlast a stopping daemon: the client reconnects to the next one.
  bool endless() const override { return !answer_->lines(); }

 private:
  std::shared_ptr<LateAnswer> answer_;
  std::function<void()> begin_;
};

}  // namespace

// One request: its verb, called again after each wait, or its upload, whose pieces it passes on. It
// holds the claim on its key throughout, so another request with that key sees it as in progress.
class Dispatcher::Call : public BodySink {
 public:
  // Routes outlive every request. The request is copied: the verb may outlive its connection.
  Call(const Route& route, const Request& request, KeyedAnswers* answers)
      : route_(route), request_(request) {
    request_.caller.notice = std::make_shared<std::string>();
    if (route.keep != Keep::nothing && !request.idempotency_key.empty()) answers_ = answers;
  }

  const Route& route() const { return route_; }
  base::Share share() const { return request_.share(); }

  // A known key gets no inner sink, so that nothing is written twice, unless the verb itself
  // detects what already exists.
  void begin_upload() {
    if (answers_) {
      request_.caller.keyed = KeyedAnswers::begin(route_, request_);
      claim_.emplace(answers_->claim(request_));
      may_be_known_ = answers_->is_known(*request_.caller.keyed);
      if (may_be_known_ && route_.resume) return;
    }
    inner_ = std::get<UploadHandler>(route_.handler)(request_);
  }
  Taken write(std::string_view piece) override {
    const Taken taken = inner_ ? inner_->write(piece) : Taken::all;
    if (answers_ && taken == Taken::all) hash_.add(piece);
    return taken;
  }
  Reply finish() override { return run({}); }
  bool patient() const override { return inner_ && inner_->patient(); }

  // Answers an error, too, also one of keeping the answer, and writes the log line.
  Reply run(const workspace::Progress& progress) {
    const auto began = Clock::now();
    Reply reply;
    try {
      reply = run_once(progress);
      add_warning(reply);
    } catch (const workspace::Waiting&) {
      throw;  // no answer yet
    } catch (...) {
      reply = error_reply(current_error());
    }
    log_answer(request_, reply, began, patient());
    claim_.reset();  // before the answer goes out, so that an immediate repeat gets the same
    return reply;
  }

 private:
  void add_warning(Reply& reply) const {
    const std::string& notice = *request_.caller.notice;
    if (notice.empty()) return;
    std::string text = base::escape_for_message(notice).substr(0, kMaxNoticeBytes);
    for (char& c : text) {
      if (static_cast<unsigned char>(c) >= 0x7f) c = '?';  // headers are ASCII
    }
    reply.headers.emplace_back("Moorage-Warning", std::move(text));
  }
  // Keeps the answer, or the refusal that it throws, before either is sent.
  Reply run_once(const workspace::Progress& progress) {
    if (!answers_) return run_verb(progress);
    if (auto kept = kept_answer()) return std::move(*kept);
    auto& keyed = *request_.caller.keyed;
    Reply reply;
    try {
      const bool resumes = route_.resume && workspace::has_begun(request_.caller);
      reply = resumes ? route_.resume(request_, keyed.begun) : run_verb(progress);
    } catch (const workspace::Waiting&) {
      throw;
    } catch (...) {
      const Error error = current_error();
      before_kept.pass();
      answers_->keep_refusal(route_.keep, keyed, error);
      keyed.until_answered.reset();
      throw Error(error);
    }
    before_kept.pass();
    answers_->keep(route_.keep, keyed, reply);
    keyed.until_answered.reset();
    after_kept.pass();
    return reply;
  }
  Reply run_verb(const workspace::Progress& progress) {
    if (const auto* handler = std::get_if<Handler>(&route_.handler)) return (*handler)(request_);
    if (const auto* lasting = std::get_if<LongHandler>(&route_.handler))
      return (*lasting)(request_, progress);
    if (!inner_) workspace::refuse_unsettled(request_.caller, "its saved answer has expired");
    return inner_->finish();
  }
  // The first request's, for a repeat with its key. Without one, the key is this request's.
  std::optional<Reply> kept_answer() {
    auto& keyed = request_.caller.keyed;
    if (route_.is_upload()) {
      keyed->set_body_hash(hash_.finish());
    } else {
      // A verb that finds its row by the key may run beside the first request, which writes that
      // row.
      if (route_.keep != Keep::refusal && !claim_) claim_.emplace(answers_->claim(request_));
      keyed = KeyedAnswers::begin(route_, request_);
      keyed->set_body_hash(base::sha256_hex(request_.body));
    }
    if (!may_be_known_) return std::nullopt;
    return answers_->find(*keyed);
  }

  const Route& route_;
  Request request_;
  KeyedAnswers* answers_ = nullptr;  // null: keeps none
  std::optional<KeyedAnswers::Claim> claim_;
  std::unique_ptr<BodySink> inner_;
  BodyHash hash_;
  bool may_be_known_ = true;  // false: a kept record would be this upload's own
};

Reply Dispatcher::answer(const Route& route, const Request& request) {
  const auto call = std::make_shared<Call>(route, request, answers_);
  if (std::holds_alternative<LongHandler>(route.handler) && request.accepts(kLinesType)) {
    const auto late = std::make_shared<LateAnswer>(true);
    auto begin_call = [this, call, late] {
      begin(
          call, [late](auto&&... progress) { late->post(progress_line(progress...)); },
          [late](Reply reply) { late->finish(std::move(reply)); });
    };
    return Reply::stream(std::make_unique<LateSource>(late, std::move(begin_call)), kLinesType);
  }
  const workspace::Progress untold = [](const std::string&, int, const std::string&) {};
  try {
    return call->run(untold);
  } catch (const workspace::Waiting& waiting) {
    const auto late = std::make_shared<LateAnswer>(false);
    wait(waiting, call, untold, [late](Reply reply) { late->finish(std::move(reply)); });
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
  } catch (...) {  // no memory for that answer or its log line: the thread must go on
    done(error_reply(current_error()));
  }
}

void Dispatcher::wait(const workspace::Waiting& waiting, const CallPtr& call,
                      const workspace::Progress& progress, const Done& done) {
  if (waiters_ == nullptr) return done(error_reply(Error(Code::unavailable, waiting.what())));
  waiters_->resume_later(waiting, [this, call, progress, done] { begin(call, progress, done); });
}

std::unique_ptr<BodySink> Dispatcher::begin_upload(const Route& route, const Request& request) {
  auto call = std::make_unique<Call>(route, request, answers_);
  call->begin_upload();
  return call;
}

}  // namespace moorage::daemon
