// The stream from another machine. The first byte selects the side; then each piece of the input is
// either raw bytes of the stream, or a call of this side.
#include "base/wire/mux.h"
#include "fuzz.h"

namespace moorage {
namespace {

constexpr size_t kMaxHeld = base::kMuxMaxPayload + base::kMuxHeaderBytes;

void feed(base::Mux& mux, std::string_view bytes) {
  while (auto frame = mux.next(bytes)) {
    fuzz::require(frame->channel != 0, "a frame has a channel");
    fuzz::require(frame->payload.size() <= base::kMuxMaxPayload, "a payload has its limit");
    if (frame->kind == base::MuxKind::reset) base::mux_reset_reason(frame->payload);
    if (frame->kind == base::MuxKind::data) mux.consumed(frame->channel, frame->payload.size());
  }
  fuzz::require(bytes.empty(), "all bytes are taken");
  fuzz::require(mux.channels() <= base::kMuxMaxChannels, "channels have their limit");
}

void call(base::Mux& mux, fuzz::Script& script, base::Mux::Side side) {
  const auto channel = static_cast<uint32_t>(script.byte());
  switch (script.below(4)) {
    case 0:
      mux.send(channel, std::string(std::min(mux.room(channel), kMaxHeld), 'x'));
      break;
    case 1:
      mux.end(channel);
      break;
    case 2:
      mux.reset(channel, Error(Code::conflict, std::string(script.piece())));
      break;
    default:
      if (side == base::Mux::Side::opener && mux.channels() < base::kMuxMaxChannels) mux.open("{}");
  }
}

}  // namespace
}  // namespace moorage

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moorage;
  fuzz::Script script(data, size);
  const auto side = script.byte() & 1 ? base::Mux::Side::opener : base::Mux::Side::answerer;
  base::Mux mux(side);
  fuzz::refused([&] {
    while (!script.over()) {
      if (script.byte() & 1)
        call(mux, script, side);
      else
        feed(mux, script.piece());
      // What this side sent is valid for the other side's account, and bounded here.
      if (mux.output().size() > base::kMuxEnoughOutput) mux.output().clear();
    }
  });
  return 0;
}
