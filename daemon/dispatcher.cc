#include "daemon/dispatcher.h"

#include <chrono>

#include "base/digest.h"
#include "base/log.h"
#include "daemon/progress_stream.h"

namespace moorage::daemon {
namespace {

using Clock = std::chrono::steady_clock;

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

// Gives the inner sink what comes; at the end a repeat gets the kept answer and the inner one is
// dropped unfinished, so that nothing of it appears.
class KeyedSink : public BodySink {
 public:
  KeyedSink(KeyedAnswers& answers, Request request, std::unique_ptr<BodySink> inner, bool keep)
      : answers_(answers), request_(std::move(request)), inner_(std::move(inner)), keep_(keep) {
    if (keep_) claim_.emplace(answers_.claim(request_));
  }

  Taken write(std::string_view piece) override {
    const Taken taken = inner_->write(piece);
    if (keep_ && taken == Taken::all && !request_.idempotency_key.empty()) hash_.add(piece);
    return taken;
  }
  Reply finish() override {
    const auto verb = [&] {
      if (!keep_) return inner_->finish();
      const std::string hash = hash_.finish();
      if (auto kept = answers_.find(request_, hash)) return std::move(*kept);
      Reply reply = inner_->finish();
      answers_.keep(request_, hash, reply);
      return reply;
    };
    return guarded(request_, verb, inner_->patient());
  }
  bool patient() const override { return inner_->patient(); }

 private:
  KeyedAnswers& answers_;
  Request request_;
  std::unique_ptr<BodySink> inner_;
  bool keep_;
  std::optional<KeyedAnswers::Claim> claim_;
  BodyHash hash_;
};

}  // namespace

template <typename Verb>
Reply Dispatcher::run_once(const Route& route, const Request& request, const Verb& verb) {
  if (answers_ == nullptr || !route.keep_answers || request.idempotency_key.empty()) return verb();
  const auto claim = answers_->claim(request);
  const std::string hash = base::sha256_hex(request.body);
  if (auto kept = answers_->find(request, hash)) return std::move(*kept);
  Reply reply = verb();
  answers_->keep(request, hash, reply);
  return reply;
}

Reply Dispatcher::answer(const Route& route, const Request& request) {
  if (const auto* handler = std::get_if<Handler>(&route.handler)) {
    return guarded(request,
                   [&] { return run_once(route, request, [&] { return (*handler)(request); }); });
  }
  const auto& handler = std::get<LongHandler>(route.handler);
  // Routes outlive every request; the request is copied, as the verb may outlive its connection.
  const auto run = [this, &route, &handler, request](const workspace::Progress& progress) {
    return guarded(request, [&] {
      return run_once(route, request, [&] { return handler(request, progress); });
    });
  };
  if (!request.accepts(kLinesType)) return run([](const std::string&, int, const std::string&) {});
  Reply reply;
  reply.content_type = kLinesType;
  reply.source = stream_progress(lanes_, route.lane, run);
  return reply;
}

std::unique_ptr<BodySink> Dispatcher::begin_upload(const Route& route, const Request& request) {
  auto inner = std::get<UploadHandler>(route.handler)(request);
  if (answers_ == nullptr) return inner;
  return std::make_unique<KeyedSink>(*answers_, request, std::move(inner), route.keep_answers);
}

}  // namespace moorage::daemon
