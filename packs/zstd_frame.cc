#include "packs/zstd_frame.h"

#include <zstd.h>

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace moorage::packs {
namespace {

constexpr int kMaxWindowLog = 25;
constexpr int kPieceBytes = 2 << 20;
constexpr std::string_view kMark = "MOORAGE\x01";

size_t check_zstd(size_t answer, const char* what) {
  if (!ZSTD_isError(answer)) return answer;
  throw Error(Code::internal, std::string(what) + ": zstd: " + ZSTD_getErrorName(answer));
}

}  // namespace

std::string frame_trailer(const std::string& digest) {
  // A skippable frame: magic 0x184D2A50 to 5F and the size of what follows, little endian.
  const std::string body = std::string(kMark) + digest;
  std::string trailer{'\x5E', '\x2A', '\x4D', '\x18', static_cast<char>(body.size()), 0, 0, 0};
  return trailer + body;
}

struct Compressor::State {
  std::unique_ptr<ZSTD_CCtx, size_t (*)(ZSTD_CCtx*)> context{ZSTD_createCCtx(), ZSTD_freeCCtx};
  std::vector<char> room = std::vector<char>(ZSTD_CStreamOutSize());
};

Compressor::Compressor(int level, unsigned threads, ByteSink sink)
    : state_(std::make_unique<State>()), sink_(std::move(sink)) {
  ZSTD_CCtx* context = state_->context.get();
  if (!context) throw Error(Code::resource_exhausted, "no memory left to compress an archive");
  check_zstd(ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, level), "compress");
  check_zstd(ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1), "compress");
  // Each thread holds one piece and its output; zstd's default is 8 MiB. This costs 0.9 % more
  // bytes.
  ZSTD_CCtx_setParameter(context, ZSTD_c_jobSize, kPieceBytes);
  // A libzstd without threads compresses in the calling thread.
  ZSTD_CCtx_setParameter(context, ZSTD_c_nbWorkers, static_cast<int>(threads > 1 ? threads : 0));
}

Compressor::~Compressor() = default;

void Compressor::emit(std::string_view bytes) {
  if (bytes.empty()) return;
  digest_.add(bytes);
  bytes_ += bytes.size();
  sink_(bytes);
}

void Compressor::run(std::string_view bytes, bool end) {
  ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
  for (bool done = false; !done;) {
    ZSTD_outBuffer out{state_->room.data(), state_->room.size(), 0};
    const size_t left = check_zstd(
        ZSTD_compressStream2(state_->context.get(), &out, &in, end ? ZSTD_e_end : ZSTD_e_continue),
        "compress");
    emit({state_->room.data(), out.pos});
    done = end ? left == 0 : in.pos == in.size;
  }
}

StreamFacts Compressor::finish() {
  run({}, true);
  emit(frame_trailer(digest_.raw()));
  return {bytes_, base::to_hex(digest_.raw())};
}

struct Decompressor::State {
  std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context{ZSTD_createDCtx(), ZSTD_freeDCtx};
  std::vector<char> room = std::vector<char>(ZSTD_DStreamOutSize());
  std::string_view input;
  bool frame_ended = false;
  bool flushing = false;  // the buffer was full: more output may follow without new input
};

Decompressor::Decompressor(ByteSource source)
    : state_(std::make_unique<State>()), source_(std::move(source)) {
  if (!state_->context) throw Error(Code::resource_exhausted, "no memory left to read an archive");
  check_zstd(ZSTD_DCtx_setParameter(state_->context.get(), ZSTD_d_windowLogMax, kMaxWindowLog),
             "decompress");
}

Decompressor::~Decompressor() = default;

bool Decompressor::refill() {
  state_->input = source_();
  return !state_->input.empty();
}

std::string_view Decompressor::next() {
  State& state = *state_;
  while (!state.frame_ended) {
    if (state.input.empty() && !state.flushing && !refill()) {
      throw Error(Code::corrupted, "it is truncated");
    }
    ZSTD_inBuffer in{state.input.data(), state.input.size(), 0};
    ZSTD_outBuffer out{state.room.data(), state.room.size(), 0};
    const size_t answer = ZSTD_decompressStream(state.context.get(), &out, &in);
    if (ZSTD_isError(answer)) {
      throw Error(Code::corrupted,
                  std::string("it cannot be decompressed: ") + ZSTD_getErrorName(answer));
    }
    digest_.add(state.input.substr(0, in.pos));
    facts_.bytes += in.pos;
    state.input.remove_prefix(in.pos);
    state.frame_ended = answer == 0;
    state.flushing = out.pos == out.size;
    if (out.pos > 0) return {state.room.data(), out.pos};
  }
  if (facts_.sha256.empty()) read_trailer();
  return {};
}

std::string Decompressor::raw(size_t at_most) {
  std::string found;
  while (found.size() < at_most && (!state_->input.empty() || refill())) {
    const size_t taken = std::min(state_->input.size(), at_most - found.size());
    found += state_->input.substr(0, taken);
    state_->input.remove_prefix(taken);
  }
  return found;
}

void Decompressor::start_next() {
  check_zstd(ZSTD_DCtx_reset(state_->context.get(), ZSTD_reset_session_only), "decompress");
  state_->frame_ended = false;
  state_->flushing = false;
  digest_.restart();
  facts_ = {};
}

void Decompressor::read_trailer() {
  // One byte more: nothing may follow it.
  const std::string found = raw(more_follows_ ? kTrailerBytes : kTrailerBytes + 1);
  if (found != frame_trailer(digest_.raw())) {
    throw Error(Code::corrupted, "its trailer does not match its contents");
  }
  digest_.add(found);
  facts_.bytes += found.size();
  facts_.sha256 = base::to_hex(digest_.raw());
}

}  // namespace moorage::packs
