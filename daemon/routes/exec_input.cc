#include "daemon/routes/exec_input.h"

#include <utility>

#include "daemon/json/json_views.h"

namespace moorage::daemon {
namespace {

using base::Code;
using base::Error;

// A command that does not read must not hold a thread: after this time the piece is queued again.
constexpr std::chrono::milliseconds kSlice{1000};

class InputSink : public BodySink {
 public:
  InputSink(workspace::Execs& execs, workspace::Caller caller, base::ExecId id,
            const InputOptions& options)
      : execs_(execs), caller_(std::move(caller)), id_(id), options_(options) {}

  Taken write(std::string_view piece) override {
    try {
      execs_.send_input(caller_, id_, options_.offset, piece, kSlice);
    } catch (const Error& error) {
      // The warden skips bytes it already has, so the whole piece can be sent again.
      if (error.code() != Code::deadline_exceeded && error.code() != Code::unknown_outcome) throw;
      return Taken::ask_again;
    }
    options_.offset += piece.size();
    return Taken::all;
  }

  Reply finish() override {
    if (options_.close_after) execs_.close_input(caller_, id_);
    Reply reply = Reply::json(accepted_json(options_.offset));
    reply.subject = id_.str();
    return reply;
  }
  bool patient() const override { return true; }

 private:
  workspace::Execs& execs_;
  workspace::Caller caller_;
  base::ExecId id_;
  InputOptions options_;
};

}  // namespace

std::unique_ptr<BodySink> feed_input(workspace::Execs& execs, const workspace::Caller& caller,
                                     base::ExecId id, const InputOptions& options) {
  execs.check_input(caller, id);  // refuse before the body is read
  return std::make_unique<InputSink>(execs, caller, id, options);
}

}  // namespace moorage::daemon
