// A journal file by a hostile or dying writer. The first byte selects whether to fix the checksums
// first: otherwise no input would pass the first check.
#include <sys/mman.h>
#include <unistd.h>

#include "base/os/fd.h"
#include "base/wire/journal.h"
#include "fuzz.h"
#include "workspace/exec/decide_end.h"

namespace moorage {
namespace {

// Gives everything that looks like a frame a valid header checksum; offsets stay unchanged.
std::string sealed(std::string bytes) {
  uint64_t output_offset = 0;
  for (size_t at = 0; at + base::kFrameHeaderBytes <= bytes.size();) {
    base::FrameHeader header;
    const auto kind = static_cast<uint8_t>(bytes[at + 4]);
    header.kind = static_cast<base::FrameKind>(kind % 6 + 1);
    const size_t left = bytes.size() - at - base::kFrameHeaderBytes;
    header.payload_bytes =
        static_cast<uint32_t>(std::min<size_t>(static_cast<uint8_t>(bytes[at + 8]), left));
    header.output_offset = bytes[at + 5] == 0 ? output_offset : kind;
    const std::string_view payload(bytes.data() + at + base::kFrameHeaderBytes,
                                   header.payload_bytes);
    const auto head = base::encode_frame_header(header, payload);
    std::copy(head.begin(), head.end(), bytes.begin() + static_cast<ptrdiff_t>(at));
    if (base::is_output(header.kind)) output_offset += header.payload_bytes;
    at += base::kFrameHeaderBytes + header.payload_bytes;
  }
  return bytes;
}

// All output bytes from `offset` on.
std::string output_from(int file, uint64_t offset, size_t file_bytes) {
  base::JournalReader reader(file);
  reader.seek_output(offset);
  std::string output;
  uint64_t position = reader.file_position();
  for (uint64_t next = offset; auto frame = reader.next();) {
    fuzz::require(reader.file_position() > position && reader.file_position() <= file_bytes,
                  "each frame is a step forward in the file");
    position = reader.file_position();
    fuzz::require(frame->payload.size() == frame->header.payload_bytes, "a frame is whole");
    if (frame->header.kind == base::FrameKind::end) workspace::parse_exec_end(frame->payload);
    if (!base::is_output(frame->header.kind)) continue;
    fuzz::require(frame->header.output_offset == next, "no output is left out or told twice");
    next += frame->payload.size();
    output += frame->payload;
  }
  return output;
}

}  // namespace
}  // namespace moorage

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moorage;
  fuzz::Script script(data, size);
  const bool seal = script.byte() & 1;
  const uint64_t offset = script.byte();
  const std::string bytes = seal ? sealed(std::string(script.rest())) : std::string(script.rest());
  const base::Fd file(memfd_create("journal", MFD_CLOEXEC));
  base::write_all(file.get(), bytes);
  const std::string all = output_from(file.get(), 0, bytes.size());
  if (offset > all.size()) return 0;
  fuzz::require(output_from(file.get(), offset, bytes.size()) == all.substr(offset),
                "output from an offset is the rest of all output");
  workspace::parse_exec_end(std::string(script.rest()));
  return 0;
}
