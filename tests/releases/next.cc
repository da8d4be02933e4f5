// A release after this one with one more protocol. Linked instead of base/wire/protocol.cc.
#include "base/wire/protocol.h"

namespace moorage::base {

const Protocols kProtocols{1, 1001};
const char* const kRelease = "next";

}  // namespace moorage::base
