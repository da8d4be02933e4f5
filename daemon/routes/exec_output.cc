#include "daemon/routes/exec_output.h"

#include <algorithm>
#include <utility>

#include "base/wire/journal.h"
#include "base/wire/output_stream.h"
#include "daemon/json/json_views.h"

namespace moorage::daemon {
namespace {

using base::FrameKind;
using base::RecordKind;
using GapPlace = base::JournalReader::GapPlace;
using workspace::ExecView;

constexpr size_t kMaxGaps = 100;

bool is_over(const ExecView& view) { return view.row.state != state_db::ExecState::running; }

RecordKind record_kind(FrameKind kind) {
  if (kind == FrameKind::standard_error) return RecordKind::standard_error;
  return kind == FrameKind::terminal ? RecordKind::terminal : RecordKind::standard_output;
}

class OutputSource : public BodySource {
 public:
  OutputSource(workspace::Execs& execs, workspace::Caller caller, base::ExecId id,
               const OutputOptions& options, base::Fd journal, std::vector<GapPlace> known_gaps)
      : execs_(execs),
        caller_(std::move(caller)),
        id_(id),
        options_(options),
        known_gaps_(std::move(known_gaps)),
        journal_(std::move(journal)),
        reader_(journal_.get()) {
    if (journal_) reader_.seek_output(options.offset);
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
  // Read the state before finding the journal exhausted: then everything that an exec wrote before
  // its end is sent before the end record.
  Step next() {
    Step step;
    if (!options_.raw && !std::exchange(told_position_, true)) {
      step.bytes = base::encode_record(RecordKind::position, offset_json(options_.offset));
      if (!journal_) step.bytes += removed_output();
    }
    while (step.bytes.size() < kPieceBytes && (!rest_.empty() || load())) append_piece(step.bytes);
    if (step.bytes.size() >= kPieceBytes || !rest_.empty()) return step;
    const bool told_all = over_ || end_seen_;
    const ExecView view = execs_.get(caller_, id_);
    if (options_.follow && !options_.raw && options_.notices) step.bytes += new_notices();
    over_ = is_over(view);
    if (over_ && !told_all) return step;
    if (over_ && !options_.raw)
      step.bytes += base::encode_record(RecordKind::end, exec_json(with_late(view)));
    step.next = over_ || !options_.follow ? Next::end : Next::wait;
    return step;
  }

  std::string new_notices() {
    std::string records;
    const auto notices = options_.notices();
    for (; told_notices_ < notices.size(); ++told_notices_)
      records += base::encode_record(RecordKind::keep_alive, notice_json(notices[told_notices_]));
    return records;
  }

  // Reports removed output (workspace/upkeep/output_retention.h) as one gap up to its end.
  std::string removed_output() {
    const ExecView view = execs_.get(caller_, id_);
    if (view.output_bytes <= options_.offset) return {};
    constexpr int64_t kNsPerMs = 1'000'000;
    const base::Gap gap{0, view.output_bytes - options_.offset, view.row.started_wall_ms * kNsPerMs,
                        view.row.outcome.ended_wall_ms * kNsPerMs};
    return base::encode_record(RecordKind::position, gap_json(view.output_bytes, gap));
  }

  // Loads the next visible frame into rest_. False: none at present.
  bool load() {
    while (journal_ && (options_.late || !end_seen_)) {
      auto frame = reader_.next();
      if (!frame) return false;
      kind_ = frame->header.kind;
      if (kind_ == FrameKind::end) end_seen_ = true;
      if (kind_ == FrameKind::gap && !options_.raw) {
        const auto gap = base::decode_gap(frame->payload);
        rest_ = gap_json(reader_.output_offset(), gap.value_or(base::Gap{}));
        return true;
      }
      if (kind_ == FrameKind::gap) require_known(frame->header.output_offset);
      if (kind_ == FrameKind::limit && !options_.raw) {
        rest_ = offset_json(frame->header.output_offset);
        return true;
      }
      if (!base::is_output(kind_) || !wanted(kind_) || frame->payload.empty()) continue;
      rest_ = std::move(frame->payload);
      mark_late(frame->header);
      return true;
    }
    return false;
  }

  // Throws unless the gap just passed is a known one.
  void require_known(uint64_t begin) {
    const uint64_t end = reader_.output_offset();
    const bool known =
        std::any_of(known_gaps_.begin(), known_gaps_.end(), [&](const GapPlace& gap) {
          return gap.end == end && gap.offset <= std::max(begin, options_.offset);
        });
    if (known) return;
    throw Error(Code::conflict,
                "output bytes " + std::to_string(begin) + " to " + std::to_string(end) + " of " +
                    id_.str() + " were removed while being read",
                "continue from offset " + std::to_string(end) + ", or read records: without raw=1");
  }

  // Before late output, and again after some time.
  void mark_late(const base::FrameHeader& header) {
    constexpr int64_t kEach_ns = 10'000'000'000;
    const bool marked = late_marked_ns_ != 0 && header.wall_ns - late_marked_ns_ < kEach_ns;
    if (!end_seen_ || options_.raw || marked) return;
    late_marked_ns_ = header.wall_ns;
    mark_ = late_json(header.output_offset, header.wall_ns / 1'000'000);
  }

  ExecView with_late(ExecView view) const {
    if (options_.late && end_seen_ && reader_.output_offset() > view.output_bytes)
      view.late_bytes = reader_.output_offset() - view.output_bytes;
    return view;
  }

  bool wanted(FrameKind kind) const {
    if (!options_.raw) return true;
    return kind == FrameKind::standard_error ? options_.standard_error : options_.standard_output;
  }

  void append_piece(std::string& out) {
    if (!mark_.empty()) out += base::encode_record(RecordKind::position, std::exchange(mark_, {}));
    const size_t room = kPieceBytes - std::min(out.size(), kPieceBytes - 1);
    const size_t size = std::min(rest_.size(), room);
    const std::string_view piece(rest_.data(), size);
    if (options_.raw) {
      out += piece;
    } else if (kind_ == FrameKind::limit || kind_ == FrameKind::gap) {
      const auto kind = kind_ == FrameKind::limit ? RecordKind::limit : RecordKind::position;
      out += base::encode_record(kind, std::exchange(rest_, {}));
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
  const std::vector<GapPlace> known_gaps_;  // with raw: listed in the answer's header
  base::Fd journal_;
  base::JournalReader reader_;
  workspace::ExecWatcher::Subscription subscription_;
  FrameKind kind_ = FrameKind::standard_output;  // of rest_
  std::string rest_;                             // of the current frame, not sent yet
  size_t told_notices_ = 0;
  std::string mark_;  // goes before rest_
  int64_t late_marked_ns_ = 0;
  bool told_position_ = false;
  bool end_seen_ = false;
  bool over_ = false;
};

class WaitSource : public BodySource {
 public:
  WaitSource(workspace::Execs& execs, workspace::Caller caller, base::ExecId id,
             std::chrono::milliseconds timeout)
      : execs_(execs),
        caller_(std::move(caller)),
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

// The journal's end, including late output; may stop early once it reaches `offset`.
uint64_t last_offset(int journal, uint64_t offset) {
  base::JournalReader reader(journal);
  reader.seek_output(offset);
  while (reader.output_offset() < offset && reader.next()) {
  }
  return reader.output_offset();
}

// The gaps in the bytes from `from` on, as of now.
std::vector<GapPlace> find_gaps(const ExecView& view, int journal, const OutputOptions& from) {
  const bool over = is_over(view);
  if (journal < 0) {
    if (!over || view.output_bytes <= from.offset) return {};
    return {{from.offset, view.output_bytes}};  // removed (workspace/upkeep/output_retention.h)
  }
  base::JournalReader reader(journal);
  reader.seek_output(from.offset);
  auto gaps = reader.skip_to_end();
  for (GapPlace& gap : gaps) gap.offset = std::max(gap.offset, from.offset);
  std::erase_if(gaps, [&](const GapPlace& gap) {
    return gap.end <= from.offset || (over && !from.late && gap.offset >= view.output_bytes);
  });
  if (gaps.size() > kMaxGaps) {
    throw Error(Code::resource_exhausted,
                view.row.id.str() + " has " + std::to_string(gaps.size()) +
                    " gaps in its output, too many for a header",
                "read records instead: without raw=1");
  }
  return gaps;
}

// An exec cut before its journal was created has a row but no output.
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

OutputBody stream_output(workspace::Execs& execs, const workspace::Caller& caller, base::ExecId id,
                         const OutputOptions& options) {
  const ExecView view = execs.get(caller, id);
  OutputOptions from = options;
  if (from.tail_bytes) {
    const uint64_t tail = std::min(*from.tail_bytes, view.output_bytes);
    from.offset = std::max(from.offset, view.output_bytes - tail);
  }
  base::Fd journal = open_journal(execs, caller, view);
  if (is_over(view) && from.offset > view.output_bytes) {
    const uint64_t last =
        from.late && journal ? last_offset(journal.get(), from.offset) : view.output_bytes;
    if (from.offset > last) {
      throw Error(Code::invalid_argument, "offset " + std::to_string(from.offset) +
                                              " is past the end of " + id.str() + ", " +
                                              std::to_string(last));
    }
  }
  OutputBody stream;
  if (from.raw) stream.gaps = find_gaps(view, journal ? journal.get() : -1, from);
  stream.source =
      std::make_unique<OutputSource>(execs, caller, id, from, std::move(journal), stream.gaps);
  return stream;
}

std::unique_ptr<BodySource> wait_for_end(workspace::Execs& execs, const workspace::Caller& caller,
                                         base::ExecId id, std::chrono::milliseconds timeout) {
  return std::make_unique<WaitSource>(execs, caller, id, timeout);
}

}  // namespace moorage::daemon
