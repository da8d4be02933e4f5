// A release that breaks its word: it speaks no protocol of this one. Linked in the place of
// base/protocol.cc.
#include "base/protocol.h"

namespace moorage::base {

const Protocols kProtocols{1001, 1001};
const char* const kRelease = "far";

}  // namespace moorage::base
