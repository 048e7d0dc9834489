package governor

// OpenFileOn is OpenFile on another disk.
var OpenFileOn = openFile
