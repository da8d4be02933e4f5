#include "daemon/exec_output.h"

#include <algorithm>

#include "base/journal.h"
#include "base/output_stream.h"
#include "daemon/json_views.h"

namespace moorage::daemon {
namespace {

using base::Code;
using base::Error;
using base::FrameKind;
using base::RecordKind;
using workspace::ExecView;

bool is_over(const ExecView& view) { return view.row.state != state_db::ExecState::running; }

RecordKind record_kind(FrameKind kind) {
  if (kind == FrameKind::standard_error) return RecordKind::standard_error;
  return kind == FrameKind::terminal ? RecordKind::terminal : RecordKind::standard_output;
}

class OutputSource : public BodySource {
 public:
  OutputSource(workspace::Execs& execs, workspace::Caller caller, base::ExecId id,
               const OutputOptions& options, base::Fd journal)
      : execs_(execs),
        caller_(caller),
        id_(id),
        options_(options),
        journal_(std::move(journal)),
        reader_(journal_.get()) {
    reader_.seek_output(options.offset);
  }

  void start(std::function<void()> wake) override {
    if (options_.follow) subscription_ = execs_.subscribe(id_, std::move(wake));
  }

  Step read() override {
    if (options_.raw || !told_position_) return next();
    try {
      return next();
    } catch (...) {
      return {base::encode_record(RecordKind::error, error_json(current_error())), Next::end, {}};
    }
  }
  std::string keep_alive() override {
    if (options_.raw) return {};
    const std::string obstacle = over_ ? std::string() : execs_.output_obstacle();
    return base::encode_record(RecordKind::keep_alive,
                               obstacle.empty() ? std::string() : notice_json(obstacle));
  }
  bool endless() const override { return options_.follow; }

 private:
  // The state is looked at before the journal is found exhausted: what an exec wrote before it was
  // over is always told before its end.
  Step next() {
    Step step;
    if (!options_.raw && !std::exchange(told_position_, true)) {
      step.bytes = base::encode_record(RecordKind::position, offset_json(options_.offset));
    }
    while (step.bytes.size() < kPieceBytes && (!rest_.empty() || load())) append_piece(step.bytes);
    if (step.bytes.size() >= kPieceBytes || !rest_.empty()) return step;
    const bool told_all = over_ || end_seen_;
    const ExecView view = execs_.get(caller_, id_);
    over_ = is_over(view);
    if (over_ && !told_all) return step;
    if (over_ && !options_.raw) step.bytes += base::encode_record(RecordKind::end, exec_json(view));
    step.next = over_ || !options_.follow ? Next::end : Next::wait;
    return step;
  }

  // The next frame that a reader sees, into rest_. False: there is none at present.
  bool load() {
    while (journal_) {
      auto frame = reader_.next();
      if (!frame) return false;
      kind_ = frame->header.kind;
      if (kind_ == FrameKind::end) end_seen_ = true;
      if (kind_ == FrameKind::limit && !options_.raw) {
        rest_ = offset_json(frame->header.output_offset);
        return true;
      }
      if (!base::is_output(kind_) || !wanted(kind_) || frame->payload.empty()) continue;
      rest_ = std::move(frame->payload);
      return true;
    }
    return false;
  }

  bool wanted(FrameKind kind) const {
    if (!options_.raw) return true;
    return kind == FrameKind::standard_error ? options_.standard_error : options_.standard_output;
  }

  void append_piece(std::string& out) {
    const size_t room = kPieceBytes - out.size();
    const size_t size = std::min(rest_.size(), room);
    const std::string_view piece(rest_.data(), size);
    if (options_.raw) {
      out += piece;
    } else if (kind_ == FrameKind::limit) {
      out += base::encode_record(RecordKind::limit, std::exchange(rest_, {}));
      return;
    } else {
      out += base::encode_record(record_kind(kind_), piece);
    }
    rest_.erase(0, size);
  }

  workspace::Execs& execs_;
  workspace::Caller caller_;
  base::ExecId id_;
  OutputOptions options_;
  base::Fd journal_;
  base::JournalReader reader_;
  workspace::ExecWatcher::Subscription subscription_;
  FrameKind kind_ = FrameKind::standard_output;  // of rest_
  std::string rest_;                             // of the present frame, not told yet
  bool told_position_ = false;
  bool end_seen_ = false;
  bool over_ = false;
};

class WaitSource : public BodySource {
 public:
  WaitSource(workspace::Execs& execs, workspace::Caller caller, base::ExecId id,
             std::chrono::milliseconds timeout)
      : execs_(execs),
        caller_(caller),
        id_(id),
        deadline_(std::chrono::steady_clock::now() + timeout) {}

  void start(std::function<void()> wake) override {
    subscription_ = execs_.subscribe(id_, std::move(wake));
  }

  Step read() override {
    const ExecView view = execs_.get(caller_, id_);
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline_ - std::chrono::steady_clock::now());
    if (is_over(view) || left.count() <= 0) return {exec_json(view), Next::end, {}};
    return {{}, Next::wait, left};
  }
  bool endless() const override { return true; }

 private:
  workspace::Execs& execs_;
  workspace::Caller caller_;
  base::ExecId id_;
  std::chrono::steady_clock::time_point deadline_;
  workspace::ExecWatcher::Subscription subscription_;
};

// An exec that was cut before its journal was made has a row and no output.
base::Fd open_journal(workspace::Execs& execs, const workspace::Caller& caller,
                      const ExecView& view) {
  try {
    return execs.open_journal(caller, view.row.id);
  } catch (const Error& error) {
    if (error.code() != Code::not_found || !is_over(view)) throw;
    return {};
  }
}

}  // namespace

std::unique_ptr<BodySource> stream_output(workspace::Execs& execs, const workspace::Caller& caller,
                                          base::ExecId id, const OutputOptions& options) {
  const ExecView view = execs.get(caller, id);
  OutputOptions from = options;
  if (from.tail_bytes) {
    const uint64_t tail = std::min(*from.tail_bytes, view.output_bytes);
    from.offset = std::max(from.offset, view.output_bytes - tail);
  }
  if (is_over(view) && from.offset > view.output_bytes) {
    throw Error(Code::invalid_argument, "offset " + std::to_string(from.offset) +
                                            " is past the end of " + id.str() + ", " +
                                            std::to_string(view.output_bytes));
  }
  return std::make_unique<OutputSource>(execs, caller, id, from, open_journal(execs, caller, view));
}

std::unique_ptr<BodySource> wait_for_end(workspace::Execs& execs, const workspace::Caller& caller,
                                         base::ExecId id, std::chrono::milliseconds timeout) {
  return std::make_unique<WaitSource>(execs, caller, id, timeout);
}

}  // namespace moorage::daemon
